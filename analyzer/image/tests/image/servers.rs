//! Tests which files the finder asks servers for, and which it accepts.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use unspool_image::{BuildId, Finder, Image, Open, Origin, Request, Servers, Wanted};

use crate::tools::{compile, directory, run};

/// Serves the files of a folder, and notes requests.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    requests: Mutex<Vec<String>>,
    refused: Mutex<Vec<String>>,
}

impl Servers for Folder {
    fn file(&self, request: &Request<'_>, open: &Open<'_>) -> Option<Image> {
        let name = format!("{}.{}", request.build_id, request.artifact.name());
        let path = self.path.join(&name);
        self.requests.lock().expect("no panic").push(name);
        if request.cached_only || !path.exists() {
            return None;
        }
        let opened = open(File::open(path).expect("a file"), request.name);
        let refused = opened.as_ref().err().map(ToString::to_string);
        self.refused.lock().expect("no panic").extend(refused);
        opened.ok()
    }

    fn take_unasked(&self) -> bool {
        false
    }

    fn problems(&self) -> Vec<String> {
        self.refused.lock().expect("no panic").clone()
    }
}

impl Folder {
    fn new(name: &str) -> Arc<Folder> {
        let path = directory(name);
        Arc::new(Folder {
            path,
            requests: Mutex::default(),
            refused: Mutex::default(),
        })
    }

    fn finder(self: &Arc<Folder>) -> Finder {
        Finder {
            servers: Some(self.clone()),
            ..Finder::default()
        }
    }

    fn serve(&self, file: &Path, id: &BuildId, artifact: &str) {
        let place = self.path.join(format!("{id}.{artifact}"));
        fs::copy(file, place).expect("a copy");
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().expect("no panic"))
    }
}

fn id(path: &Path) -> BuildId {
    let image = Image::open(path).expect("an image");
    image.build_id().expect("a build-id").clone()
}

fn local(path: &Path) -> Wanted<'_> {
    Wanted {
        path: path.to_str().expect("text"),
        build_id: None,
        local: true,
    }
}

/// A program with a supplementary file, whose places no longer exist.
#[test]
fn debug_file_and_its_supplementary_file() {
    let folder = Folder::new("served-dwz");
    let names = ["one", "two"];
    let [one, two] = names.map(|name| {
        compile(
            &folder.path,
            name,
            "g++ -g -O2 -gdwarf-4 -pthread",
            "shapes.cpp",
        )
    });
    let sup = folder.path.join("sup.debug");
    run(&format!(
        "dwz -m {0} -M sup.debug {1} {2}",
        sup.display(),
        one.display(),
        two.display()
    ));
    let stripped = folder.path.join("stripped");
    run(&format!(
        "strip -o {} {}",
        stripped.display(),
        one.display()
    ));
    let (own, common) = (id(&one), id(&sup));
    folder.serve(&one, &own, "debuginfo");
    folder.serve(&sup, &common, "debuginfo");
    fs::remove_file(&sup).expect("removed");

    let found = folder.finder().find(&local(&stripped), None).expect("it");
    assert_eq!(found.notes, Vec::<String>::new());
    assert!(found.image.debug_image().is_some() && found.image.supplementary_image().is_some());
    assert!(found.image.is_downloaded());
    let asked = [own, common].map(|id| format!("{id}.debuginfo"));
    assert_eq!(folder.requests(), asked);

    let mut finder = folder.finder();
    finder.cached_only = true;
    let found = finder.find(&local(&stripped), None).expect("it");
    assert!(found.image.debug_image().is_none() && !found.image.is_downloaded());
    // A local file needs no request.
    folder.requests();
    let found = folder.finder().find(&local(&two), None).expect("it");
    assert!(found.image.supplementary_image().is_some());
    assert_eq!(folder.requests(), asked[1..]);
}

#[test]
fn a_program_that_is_not_at_hand() {
    let folder = Folder::new("served-program");
    let program = compile(&folder.path, "program", "gcc -g", "plain.c");
    let id = id(&program);
    folder.serve(&program, &id, "executable");
    let mut wanted = Wanted {
        path: "/nowhere/program",
        build_id: None,
        local: false,
    };
    assert!(folder.finder().find(&wanted, None).is_err());
    assert!(folder.requests().is_empty());
    wanted.build_id = Some(&id);
    let found = folder.finder().find(&wanted, None).expect("served");
    assert!(found.image.is_downloaded());
    assert_eq!(found.origin, Origin::Server(wanted.path.to_owned()));
    assert_eq!(folder.requests(), [format!("{id}.executable")]);
}

#[test]
fn wrong_files_are_refused() {
    let folder = Folder::new("served-wrong");
    let program = compile(&folder.path, "program", "gcc -g", "plain.c");
    let other = compile(&folder.path, "other", "gcc -g -O3", "plain.c");
    let note = format!("-Wl,--build-id=0x{}", id(&program));
    let arm = format!("arm-linux-gnueabihf-gcc -g {note}");
    let arm = compile(&folder.path, "arm", &arm, "plain.c");
    let stripped = folder.path.join("stripped");
    run(&format!(
        "strip -o {} {}",
        stripped.display(),
        program.display()
    ));
    let id = id(&program);
    let half = folder.path.join("half");
    let bytes = fs::read(&program).expect("bytes");
    fs::write(&half, &bytes[..bytes.len() / 2]).expect("written");
    let text = folder.path.join("text");
    fs::write(&text, "<html>").expect("written");
    for (file, why) in [
        (&other, "expected build-id"),
        (&arm, "it is for arm"),
        (&half, "it is cut off or damaged"),
        (&text, "it is not a usable ELF file"),
    ] {
        folder.serve(file, &id, "debuginfo");
        let found = folder.finder().find(&local(&stripped), None).expect("it");
        assert!(found.image.debug_image().is_none(), "{}", file.display());
        let problem = folder.problems().pop().expect("a problem");
        assert!(problem.starts_with(why), "{problem}");
    }
    folder.serve(&program, &id, "debuginfo");
    let found = folder.finder().find(&local(&stripped), None).expect("it");
    assert!(found.image.debug_image().is_some());
}

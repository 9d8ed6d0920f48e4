//! Tests finding files: sysroots, build-ids, the target's own files, and the errors if there is
//! none.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use unspool_image::{Arch, BuildId, FindError, Finder, Image, Origin, Wanted};

use crate::tools::{compile, directory, run};

const LIBC: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";
const ARM_LIBC: &str = "/usr/arm-linux-gnueabihf/lib/libc.so.6";

fn wanted(path: &str) -> Wanted<'_> {
    Wanted {
        path,
        build_id: None,
        local: false,
    }
}

fn id(path: &str) -> BuildId {
    Image::open(path.as_ref())
        .expect("an image")
        .build_id()
        .expect("an id")
        .clone()
}

fn found_at(finder: &Finder, path: &str) -> PathBuf {
    match finder
        .find(&wanted(path), None)
        .unwrap_or_else(|error| panic!("{error}"))
        .origin
    {
        Origin::File(path) => path,
        other => panic!("{other}"),
    }
}

#[test]
fn symlinks_are_the_targets() {
    let root = directory("sysroot");
    let lib = root.join("usr/lib/arm-linux-gnueabihf");
    fs::create_dir_all(&lib).expect("a directory");
    fs::create_dir_all(root.join("etc/alternatives")).expect("a directory");
    fs::copy(ARM_LIBC, lib.join("libreal-1.so")).expect("copied");
    // An absolute link, one through another directory, and too many `..`.
    symlink("/etc/alternatives/libx", lib.join("libx.so.1")).expect("a link");
    symlink(
        "/usr/lib/arm-linux-gnueabihf/libreal-1.so",
        root.join("etc/alternatives/libx"),
    )
    .expect("a link");
    symlink(
        "../../../../../../usr/lib/arm-linux-gnueabihf/libreal-1.so",
        lib.join("liby.so"),
    )
    .expect("a link");
    symlink("loop.so", lib.join("loop.so")).expect("a link");
    let finder = Finder::new(Some(root.clone()));
    let real = lib.join("libreal-1.so");
    for path in [
        "/usr/lib/arm-linux-gnueabihf/libx.so.1",
        "/usr/lib/arm-linux-gnueabihf/liby.so",
        // A merged /usr without its links.
        "/lib/arm-linux-gnueabihf/libx.so.1",
        "/lib/arm-linux-gnueabihf/../arm-linux-gnueabihf/libreal-1.so",
        // Only a name, in another directory.
        "libx.so.1",
        "/opt/lib/libreal-1.so",
    ] {
        assert_eq!(found_at(&finder, path), real, "{path}");
    }
    // With the link, as on a real system.
    symlink("usr/lib", root.join("lib")).expect("a link");
    assert_eq!(
        found_at(&finder, "/lib/arm-linux-gnueabihf/libx.so.1"),
        real
    );
    // A host file with the same path is not used silently instead of one in the sysroot.
    assert!(
        finder
            .find(&wanted("/usr/lib/arm-linux-gnueabihf/loop.so"), None)
            .is_err()
    );
    let found = finder.find(&wanted(LIBC), None).expect("the host's");
    assert!(found.notes[0].contains("may differ"), "{:?}", found.notes);
    // qemu-user reports paths of the host.
    assert_eq!(found_at(&finder, &real.to_string_lossy()), real);
}

#[test]
fn a_wrong_build_id_is_an_error_that_names_both() {
    let root = directory("wrong");
    fs::create_dir_all(root.join("lib")).expect("a directory");
    fs::copy(ARM_LIBC, root.join("lib/libc.so.6")).expect("copied");
    let expected: BuildId = "0123456789abcdef0123456789abcdef01234567"
        .parse()
        .expect("an id");
    let finder = Finder::new(Some(root.clone()));
    let asked = Wanted {
        build_id: Some(&expected),
        ..wanted("/lib/libc.so.6")
    };
    let error = finder.find(&asked, None).expect_err("another build");
    assert!(matches!(error, FindError::WrongBuildId { .. }));
    let message = error.to_string();
    for part in [
        &*root.join("lib/libc.so.6").to_string_lossy(),
        &expected.to_string(),
        &id(ARM_LIBC).to_string(),
        "--sysroot",
    ] {
        assert!(message.contains(part), "{message}");
    }
    // The right file on the target itself is used instead.
    let right = id(ARM_LIBC);
    fs::copy(LIBC, root.join("lib/libc.so.6")).expect("copied");
    let mut asked_for = Vec::new();
    let mut fetch = |path: &str| {
        asked_for.push(path.to_owned());
        fs::read(ARM_LIBC).map_err(|error| error.to_string())
    };
    let asked = Wanted {
        build_id: Some(&right),
        ..wanted("/lib/libc.so.6")
    };
    let found = finder.find(&asked, Some(&mut fetch)).expect("fetched");
    assert_eq!(found.origin, Origin::Target("/lib/libc.so.6".to_owned()));
    assert_eq!(found.image.arch(), Arch::Arm);
    assert_eq!(asked_for, ["/lib/libc.so.6"]);
}

#[test]
fn a_missing_file_lists_the_places_and_the_remedy() {
    let message = Finder::default()
        .find(&wanted("/opt/none/libnone.so.3"), None)
        .expect_err("none")
        .to_string();
    assert!(
        message.contains("/opt/none/libnone.so.3") && message.contains("--sysroot DIR"),
        "{message}"
    );
    let root = directory("missing");
    let mut fetch = |_: &str| Err("no such file on the target".to_owned());
    let error = Finder::new(Some(root.clone()))
        .find(&wanted("/lib/libnone.so.3"), Some(&mut fetch))
        .expect_err("none");
    let message = error.to_string();
    for part in [
        &*root.join("lib/libnone.so.3").to_string_lossy(),
        "other places",
        "no such file on the target",
        "into the sysroot",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let second = root.join("usr/lib/libnone.so.3").display().to_string();
    assert!(
        matches!(&error, FindError::NotFound { tried, .. } if tried.contains(&second)),
        "{error:?}"
    );
    for path in ["", "[vdso]", "linux-vdso.so.1"] {
        assert!(
            Finder::default()
                .find(
                    &Wanted {
                        local: true,
                        ..wanted(path)
                    },
                    None
                )
                .is_err()
        );
    }
}

#[test]
fn local_files_serve_local_targets_and_proved_ones() {
    let local = Wanted {
        local: true,
        ..wanted(LIBC)
    };
    let found = Finder::default().find(&local, None).expect("libc");
    assert!(found.notes.is_empty());
    let by_name = Wanted {
        local: true,
        ..wanted("libc.so.6")
    };
    let mut finder = Finder {
        arch: Some(Arch::X86_64),
        ..Finder::default()
    };
    assert_eq!(
        finder.find(&by_name, None).expect("libc").image.arch(),
        Arch::X86_64
    );
    finder.arch = Some(Arch::Arm);
    // The host may also have libraries for the target's architecture.
    assert!(
        finder
            .find(&by_name, None)
            .map_or(true, |found| found.image.arch() == Arch::Arm)
    );
    let right = id(LIBC);
    let proved = Wanted {
        build_id: Some(&right),
        ..wanted(LIBC)
    };
    assert!(
        Finder::default()
            .find(&proved, None)
            .expect("libc")
            .notes
            .is_empty()
    );
    let deleted = format!("{LIBC} (deleted)");
    assert!(
        Finder::default()
            .find(
                &Wanted {
                    path: &deleted,
                    ..proved
                },
                None
            )
            .is_ok()
    );
}

#[test]
fn a_corrupt_file_is_an_error_that_names_it() {
    let root = directory("corrupt-file");
    fs::create_dir_all(root.join("lib")).expect("a directory");
    fs::write(root.join("lib/libbad.so"), b"not ELF").expect("written");
    let error = Finder::new(Some(root))
        .find(&wanted("/lib/libbad.so"), None)
        .expect_err("no image");
    assert!(
        error.to_string().contains("libbad.so is not an ELF file"),
        "{error}"
    );
}

/// Debian's armhf libc in a sysroot, with its debug file from the host's /usr/lib/debug.
#[test]
fn the_armhf_libc_of_debian_gets_its_debug_file() {
    let directory = directory("armhf");
    let listing = run("dpkg -L libc6-dbg:armhf");
    let debug = listing
        .lines()
        .filter(|line| line.ends_with(".debug"))
        .filter_map(|line| Image::open(line.as_ref()).ok())
        .find(|image| !image.symbols().named("__pthread_create_2_1").is_empty())
        .expect("libc6-dbg:armhf");
    assert_eq!(debug.arch(), Arch::Arm);
    let create = debug.symbols().named("__pthread_create_2_1")[0];
    assert_eq!(debug.thumb_at(create.svma), Some(true));
    let location = unspool_image::Locator::new(&debug).locate(create.svma + 4);
    let frame = location.lines.last().expect("lines");
    assert_eq!(frame.function.as_deref(), Some("__pthread_create_2_1"));
    assert!(
        frame
            .file
            .as_deref()
            .expect("a file")
            .ends_with("pthread_create.c")
    );
    crate::lines::compare_lines(
        "armhf libc",
        "arm-linux-gnueabihf-addr2line",
        &debug,
        Path::new(debug.name()),
        0.97,
    );
    assert!(debug.section(".debug_frame").is_some());
    // A file that has only the build-id gets the debug file attached.
    let id = debug.build_id().expect("an id").to_string();
    let program = compile(
        &directory,
        "stub",
        &format!("arm-linux-gnueabihf-gcc -O2 -Wl,--build-id=0x{id} -s"),
        "plain.c",
    );
    let image = Image::open(&program).expect("an image");
    assert_eq!(image.build_id().map(|id| id.to_string()), Some(id));
    let image =
        Finder::default().attach_debug_file(image, Some(&program), "/bin/stub", &mut Vec::new());
    assert_eq!(image.debug_image().map(Image::name), Some(debug.name()));
}

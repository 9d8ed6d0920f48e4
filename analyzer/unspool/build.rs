//! Builds the program that `unspool demo` records, with the system's C compiler.
//!
//! Without one the command is built all the same; `unspool demo` then says what was missing.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const SOURCE: &str = "demo/orders.c";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=CC");
    let target = env::var("TARGET").unwrap_or_default();
    let for_target = format!("CC_{}", target.replace('-', "_"));
    println!("cargo::rerun-if-env-changed={for_target}");

    let output = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("orders");
    let native = env::var("HOST").is_ok_and(|host| host == target);
    let compiler = env::var(for_target).ok().or_else(|| {
        native.then(|| {
            env::var("CC")
                .ok()
                .filter(|cc| !cc.is_empty())
                .unwrap_or("cc".into())
        })
    });
    let built = match compiler {
        Some(compiler) => compile(&compiler, &output),
        None => Err(format!("no C compiler is named for {target}")),
    };
    if let Err(reason) = built {
        println!("cargo::warning=`unspool demo` will not work: {reason}");
        fs::write(&output, []).expect("OUT_DIR is writable");
    }
}

/// Compiles with paths that are the same on every machine, for the report shows them.
fn compile(compiler: &str, output: &Path) -> Result<(), String> {
    let mut words = compiler.split_whitespace();
    let here = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let status = Command::new(words.next().unwrap_or("cc"))
        .args(words)
        .args(["-g", "-Og", "-pthread", "-o"])
        .arg(output)
        .arg(format!("-ffile-prefix-map={here}="))
        .arg(SOURCE)
        .status()
        .map_err(|error| format!("cannot run the C compiler {compiler}: {error}"))?;
    if !status.success() {
        return Err(format!(
            "the C compiler {compiler} failed on {SOURCE} ({status})"
        ));
    }
    Ok(())
}

//! Replays stored fuzz inputs (`tests/inputs`, a folder for each target) through the fuzz targets,
//! so that fixed bugs do not return.

use std::path::Path;

use crate::harness::TARGETS;

#[test]
fn kept_inputs() {
    for (target, run) in TARGETS {
        let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/inputs");
        let folder = std::fs::read_dir(inputs.join(target)).expect("a folder for each target");
        let mut count = 0;
        for entry in folder {
            let path = entry.expect("entry").path();
            // After a panic, the last printed input is the cause.
            println!("{}", path.display());
            run(&std::fs::read(&path).expect("input"));
            count += 1;
        }
        assert!(count > 0, "no inputs for {target}");
    }
}

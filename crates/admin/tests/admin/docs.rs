//! `docs/admin.md`.

use std::path::Path;
use std::{env, fs};

#[test]
fn the_checked_in_reference_is_the_generated_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/admin.md");
    let generated = admin::markdown();
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &generated).unwrap();
    }
    let checked_in = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        checked_in == generated,
        "docs/admin.md is not up to date; write it with: UPDATE_DOCS=1 cargo test -p weir-admin"
    );
}

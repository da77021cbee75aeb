//! `docs/admin.md` and `docs/metrics.md`.

use std::path::Path;
use std::{env, fs};

#[test]
fn the_checked_in_references_are_the_generated_ones() {
    check("admin.md", &admin::markdown());
    check("metrics.md", &admin::metrics_markdown());
}

fn check(name: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, generated).unwrap();
    }
    let checked_in = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        checked_in == generated,
        "docs/{name} is not up to date; write it with: UPDATE_DOCS=1 cargo test -p weir-admin"
    );
}

//! Executables of the examples, for tests that start processes of them.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The example's executable. `cargo test` builds it first, but `--test` with one name does not. So
/// it is built here if it is missing or older than its sources.
pub(crate) fn executable(example: &str) -> PathBuf {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = BUILDING.lock().unwrap();
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let executable = profile.join("examples").join(example);
    if !is_up_to_date(&executable) {
        build_into(profile, example);
    }
    assert!(
        executable.exists(),
        "{executable:?} is missing: run `cargo build --workspace --examples`"
    );
    executable
}

/// Cargo lists the sources of an executable in a file next to it: `executable: source source ...`.
fn is_up_to_date(executable: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|it| it.modified());
    let sources = std::fs::read_to_string(executable.with_extension("d")).unwrap_or_default();
    let (Ok(built), Some((_, sources))) = (changed(executable), sources.split_once(": ")) else {
        return false;
    };
    let mut sources = sources.split_whitespace().map(Path::new);
    sources.all(|source| changed(source).is_ok_and(|changed| changed <= built))
}

fn build_into(profile: &Path, example: &str) {
    let Some(cargo) = std::env::var_os("CARGO") else {
        return;
    };
    let mut build = std::process::Command::new(cargo);
    // quickstart and leader need so little that they are in the root package.
    let package = match example {
        "quickstart" | "leader" => "lock-recipes",
        _ => env!("CARGO_PKG_NAME"),
    };
    build.args([
        "build",
        "--quiet",
        "--package",
        package,
        "--example",
        example,
    ]);
    build.arg("--target-dir").arg(profile.parent().unwrap());
    build
        .arg("--profile")
        .arg(match profile.file_name().unwrap() {
            debug if debug == "debug" => "dev".as_ref(),
            profile => profile,
        });
    build.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let built = build.status().unwrap();
    assert!(built.success(), "cannot build the example: {build:?}");
}

//! Checks that all places that name the version of the Python packages name that of the workspace. The package `stoker`
//! and its engine only work together in equal versions.

use std::fs::read_to_string;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Files of `clients/python`, and what each says about the version `*`.
const PLACES: [(&str, &str); 4] = [
    ("stoker/_version.py", "\n__version__ = \"*\"\n"),
    ("native-engine/stoker_engine/__init__.py", "\n__version__ = \"*\"\n"),
    ("pyproject.toml", "\nengine = [\"stoker-engine==*\"]\n"),
    ("native-engine/pyproject.toml", "\ndependencies = [\"stoker==*\"]\n"),
];

#[test]
fn python_packages_name_the_version_of_the_workspace() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the root")?;
    let manifest: toml::Table = read_to_string(root.join("Cargo.toml"))?.parse()?;
    let version = manifest["workspace"]["package"]["version"].as_str().context("a version")?;
    for (file, line) in PLACES {
        let (text, line) = (read_to_string(root.join("clients/python").join(file))?, line.replace('*', version));
        ensure!(text.contains(&line), "clients/python/{file} does not say {:?}", line.trim());
    }
    Ok(())
}

//! Checks the layers: a member depends only on members that the workspace manifest lists before it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

fn manifest(path: &Path) -> Result<toml::Table> {
    Ok(std::fs::read_to_string(path).with_context(|| path.display().to_string())?.parse()?)
}

/// Returns the names of the members, from the lowest layer to the highest, with their manifests.
fn members() -> Result<Vec<(String, toml::Table)>> {
    let workspace = manifest(&root().join("Cargo.toml"))?;
    let members = workspace["workspace"]["members"].as_array().context("members")?;
    let read = |member: &toml::Value| {
        let manifest = manifest(&root().join(member.as_str().context("a path")?).join("Cargo.toml"))?;
        Ok((manifest["package"]["name"].as_str().context("a name")?.to_string(), manifest))
    };
    members.iter().map(read).collect()
}

/// Returns the dependencies of a member, on all targets.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let by_target = targets.into_iter().flat_map(toml::Table::values).filter_map(toml::Value::as_table);
    let places = std::iter::once(manifest).chain(by_target);
    let tables = places.flat_map(|place| ["dependencies", "build-dependencies"].map(|key| place.get(key)?.as_table()));
    tables.flatten().flat_map(|table| table.keys().cloned()).collect()
}

#[test]
fn members_depend_only_on_lower_layers() -> Result<()> {
    let members = members()?;
    let layer: BTreeMap<&str, usize> = members.iter().enumerate().map(|(at, (name, _))| (name.as_str(), at)).collect();
    ensure!(layer.len() >= 12, "only {} members were found", layer.len());
    for (name, manifest) in &members {
        for dependency in dependencies(manifest) {
            if let Some(other) = layer.get(dependency.as_str()) {
                ensure!(*other < layer[name.as_str()], "{name} depends on {dependency}, which lies above it");
            }
        }
    }
    Ok(())
}

#[test]
fn only_their_own_crates_know_storage_queries_and_transport() -> Result<()> {
    let rules: [(&str, &[&str]); 11] = [
        ("lance", &["stoker-lake"]),
        ("object_store", &["stoker-store", "stoker-lake"]),
        ("datafusion", &["stoker-functions", "stoker-lake", "stoker-sql"]),
        ("tonic", &["stoker-flight"]),
        ("arrow-flight", &["stoker-flight"]),
        ("hyper", &["stoker-flight"]),
        ("rustls", &["stoker-net", "stoker-store", "stoker-flight"]),
        ("prost", &["stoker-flight"]),
        ("pyo3", &["stoker-python"]),
        ("clap", &["stoker-bench", "stoker-cli"]),
        (
            "tokio",
            &[
                "stoker-functions",
                "stoker-net",
                "stoker-store",
                "stoker-lake",
                "stoker-chunks",
                "stoker-sql",
                "stoker-stream",
                "stoker-ingest",
                "stoker-flight",
                "stoker-bench",
                "stoker-cli",
                "stoker-python",
                "stoker-tests",
            ],
        ),
    ];
    for (name, manifest) in members()? {
        for dependency in dependencies(&manifest) {
            for (family, allowed) in rules {
                let is_of_family = dependency == family || (family == "lance" && dependency.starts_with("lance-"));
                ensure!(!is_of_family || allowed.contains(&name.as_str()), "{name} must not know {dependency}");
            }
        }
    }
    Ok(())
}

#[test]
fn every_member_shares_the_lints() -> Result<()> {
    for (name, manifest) in members()? {
        let shared = manifest.get("lints").and_then(|lints| lints.get("workspace")?.as_bool());
        ensure!(shared == Some(true), "{name} does not inherit the workspace's lints");
    }
    Ok(())
}

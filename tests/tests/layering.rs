//! Checks the layers: a member depends only on members that the workspace manifest lists before it, few members know
//! each library, a client is built without the engine and from the same object files, and no member is large.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Families of libraries, and the members that may depend on them. A family is a crate and all crates whose names begin
/// with its name and a hyphen. Dependencies of tests alone do not count.
const LIBRARIES: [(&str, &[&str]); 14] = [
    ("lance", &["stoker-text", "stoker-pages", "stoker-lake"]),
    ("object_store", &["stoker-store", "stoker-lake", "stoker-buckets"]),
    ("datafusion", &["stoker-functions", "stoker-lake", "stoker-catalog", "stoker-sql"]),
    ("sqlparser", &["stoker-dialect"]),
    ("parquet", &["stoker-ingest", "stoker-tests"]),
    ("tonic", &["stoker-wire", "stoker-client", "stoker-server"]),
    ("arrow-flight", &["stoker-flight-sql", "stoker-wire", "stoker-client", "stoker-server"]),
    ("prost", &["stoker-lake", "stoker-flight-sql", "stoker-wire", "stoker-client", "stoker-server"]),
    ("hyper", &["stoker-store", "stoker-server"]),
    ("rustls", &["stoker-net", "stoker-client", "stoker-store", "stoker-server"]),
    ("tokenizers", &["stoker-tokenize"]),
    ("pyo3", &["stoker-python", "stoker-python-client", "stoker-python-engine"]),
    ("clap", &["stoker-bench", "stoker-cli"]),
    (
        "tokio",
        &[
            "stoker-functions",
            "stoker-clock",
            "stoker-batch",
            "stoker-net",
            "stoker-session",
            "stoker-client",
            "stoker-store",
            "stoker-lake",
            "stoker-buckets",
            "stoker-chunks",
            "stoker-sql",
            "stoker-stream",
            "stoker-ingest",
            "stoker-server",
            "stoker-bench",
            "stoker-cli",
            "stoker-python",
            "stoker-tests",
        ],
    ),
];

/// The members from which a client is built.
const CLIENT: [&str; 6] =
    ["stoker-columns", "stoker-wire", "stoker-session", "stoker-client", "stoker-python", "stoker-python-client"];

/// The members and the families of libraries of the engine and of its storage.
const ENGINE: [&str; 9] = [
    "lance",
    "datafusion",
    "object_store",
    "stoker-store",
    "stoker-lake",
    "stoker-maintenance",
    "stoker-chunks",
    "stoker-sql",
    "stoker-stream",
];

/// The members that take time and random numbers from whoever calls them, so that tests decide about both.
const WITHOUT_CLOCK: [&str; 9] = [
    "stoker-types",
    "stoker-dialect",
    "stoker-order",
    "stoker-clock",
    "stoker-batch",
    "stoker-session",
    "stoker-client",
    "stoker-stream",
    "stoker-server",
];

/// The member without code that names features of libraries for the client.
const FEATURES: &str = "stoker-features";

/// The most files of production code of a member.
const FILES_MAX: usize = 60;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

fn manifest(path: &Path) -> Result<toml::Table> {
    Ok(read_to_string(path).with_context(|| path.display().to_string())?.parse()?)
}

/// Returns the folders of the members, from the lowest layer to the highest.
fn folders() -> Result<Vec<String>> {
    let workspace = manifest(&root().join("Cargo.toml"))?;
    let members = workspace["workspace"]["members"].as_array().context("members")?;
    let folders = members.iter().map(|member| Ok(member.as_str().context("a path")?.to_string()));
    let folders: Vec<String> = folders.collect::<Result<_>>()?;
    ensure!(folders.len() >= 24, "only {} members were found", folders.len());
    Ok(folders)
}

/// Returns the names of the members, from the lowest layer to the highest, with their manifests.
fn members() -> Result<Vec<(String, toml::Table)>> {
    let read = |folder: String| {
        let manifest = manifest(&root().join(folder).join("Cargo.toml"))?;
        Ok((manifest["package"]["name"].as_str().context("a name")?.to_string(), manifest))
    };
    folders()?.into_iter().map(read).collect()
}

/// Returns the dependencies of a member, on all targets.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let by_target = targets.into_iter().flat_map(toml::Table::values).filter_map(toml::Value::as_table);
    let places = std::iter::once(manifest).chain(by_target);
    let tables = places.flat_map(|place| ["dependencies", "build-dependencies"].map(|key| place.get(key)?.as_table()));
    tables.flatten().flat_map(|table| table.keys().cloned()).collect()
}

/// Whether a dependency is a crate of a family.
fn is_of_family(dependency: &str, family: &str) -> bool {
    dependency.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Returns the dependencies of each member that has code, members and libraries.
fn dependencies_of_members() -> Result<BTreeMap<String, Vec<String>>> {
    let with_code = members()?.into_iter().filter(|(name, _)| name != FEATURES);
    Ok(with_code.map(|(name, manifest)| (name, dependencies(&manifest))).collect())
}

/// Returns the crates of a build, each with its version and its features. A crate that is built in several ways, such as
/// for build scripts too, occurs once for each.
fn crates_with_features(selection: &[&str]) -> Result<BTreeSet<String>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()).args(["tree", "--offline", "--locked", "--prefix", "none", "--format", "{p} {f}"]);
    let output = cargo.args(selection).output().context("could not start cargo")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout)?;
    Ok(lines.lines().map(|line| line.trim_end_matches(" (*)").to_string()).filter(|line| !line.is_empty()).collect())
}

/// Returns the shortest path of dependencies from a member to the engine or its storage.
fn path_to_engine<'a>(member: &'a str, dependencies: &'a BTreeMap<String, Vec<String>>) -> Option<Vec<&'a str>> {
    let (mut paths, mut seen) = (VecDeque::from([vec![member]]), BTreeSet::from([member]));
    while let Some(path) = paths.pop_front() {
        for dependency in path.last().and_then(|last| dependencies.get(*last)).into_iter().flatten() {
            let longer = [path.as_slice(), &[dependency.as_str()]].concat();
            if ENGINE.iter().any(|family| is_of_family(dependency, family)) {
                return Some(longer);
            }
            if seen.insert(dependency) {
                paths.push_back(longer);
            }
        }
    }
    None
}

/// Counts the Rust files below a folder, except tests.
fn count_files(folder: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let is_test = path.file_stem().is_some_and(|name| name == "tests");
        if path.is_dir() && !is_test {
            count += count_files(&path)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") && !is_test {
            count += 1;
        }
    }
    Ok(count)
}

/// Returns the members that have more than `files_max` files of production code, with the numbers of their files.
fn large_members(files_max: usize) -> Result<Vec<String>> {
    let mut large = Vec::new();
    for folder in folders()? {
        let count = count_files(&root().join(&folder).join("src"))?;
        ensure!(count > 0, "{folder} has no Rust files below src");
        if count > files_max {
            large.push(format!("{folder} has {count} files of production code, more than {files_max}: divide it"));
        }
    }
    Ok(large)
}

#[test]
fn members_depend_only_on_lower_layers() -> Result<()> {
    let members = members()?;
    let layer: BTreeMap<&str, usize> = members.iter().enumerate().map(|(at, (name, _))| (name.as_str(), at)).collect();
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
    let dependencies = dependencies_of_members()?;
    for (family, allowed) in LIBRARIES {
        for name in allowed {
            let known = dependencies.get(*name).with_context(|| format!("{name} is no member"))?;
            ensure!(
                known.iter().any(|known| is_of_family(known, family)),
                "{name} does not depend on {family}: take it from the list"
            );
        }
        for (name, known) in &dependencies {
            for dependency in known.iter().filter(|dependency| is_of_family(dependency, family)) {
                ensure!(allowed.contains(&name.as_str()), "{name} must not know {dependency}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_client_is_built_without_the_engine() -> Result<()> {
    let dependencies = dependencies_of_members()?;
    for member in CLIENT {
        ensure!(dependencies.contains_key(member), "{member} is no member");
        let path = path_to_engine(member, &dependencies);
        ensure!(path.is_none(), "a client needs no engine: {}", path.unwrap_or_default().join(" → "));
    }
    Ok(())
}

#[test]
fn the_client_has_the_features_of_the_workspace() -> Result<()> {
    // Without procedural macros, a crate occurs as it is linked; build scripts and macros may have another set of features.
    let edges = [("normal,no-proc-macro", "normal,dev,no-proc-macro"), ("normal,build", "normal,build,dev")];
    let mut other = BTreeSet::new();
    for (of_client, of_all) in edges {
        let client = crates_with_features(&["--edges", of_client, "--package", "stoker-python-client"])?;
        let all = crates_with_features(&["--edges", of_all, "--workspace", "--exclude", "xtask"])?;
        ensure!(client.len() > 100 && all.len() > client.len(), "only {} and {} crates", client.len(), all.len());
        other.extend(client.difference(&all).cloned());
    }
    let other: Vec<String> = other.into_iter().collect();
    ensure!(
        other.is_empty(),
        "the wheel of the client compiles these crates again, because the workspace builds them with more features; add \
         those to crates/stoker-features/Cargo.toml:\n{}",
        other.join("\n")
    );
    Ok(())
}

#[test]
fn members_without_a_clock_of_their_own_have_the_lint_for_it() -> Result<()> {
    for member in WITHOUT_CLOCK {
        let path = root().join("crates").join(member).join("src/lib.rs");
        let text = read_to_string(&path).with_context(|| path.display().to_string())?;
        let has_lint =
            text.lines().any(|line| line.starts_with("#![") && line.contains("warn(clippy::disallowed_methods)"));
        ensure!(has_lint, "{member} does not turn clippy::disallowed_methods on: see clippy.toml");
    }
    Ok(())
}

#[test]
fn no_member_is_large() -> Result<()> {
    let large = large_members(FILES_MAX)?;
    ensure!(large.is_empty(), "{}", large.join("\n"));
    Ok(())
}

#[test]
fn wrong_layers_are_found() -> Result<()> {
    ensure!(is_of_family("lance-core", "lance") && is_of_family("lance", "lance") && !is_of_family("lancet", "lance"));
    let members = dependencies_of_members()?;
    for member in ["stoker", "stoker-lake", "stoker-sql", "stoker-python-engine"] {
        ensure!(path_to_engine(member, &members).is_some(), "{member} depends on no part of the engine");
    }
    let of = |name: &str, known: [&str; 2]| (name.to_string(), known.map(String::from).to_vec());
    let members = BTreeMap::from([of("client", ["session", "tonic"]), of("session", ["serde", "lance-core"])]);
    ensure!(path_to_engine("client", &members) == Some(vec!["client", "session", "lance-core"]));
    let large = large_members(1)?;
    ensure!(large.iter().any(|member| member.starts_with("crates/stoker-lake has ")), "{large:?}");
    Ok(())
}

/// Whether the documentation in a file has an example that is compiled.
fn has_example(source: &str) -> bool {
    let mut is_in_block = false;
    source.lines().any(|line| {
        let text = line.trim_start();
        let Some(text) = text.strip_prefix("//!").or_else(|| text.strip_prefix("///")) else { return false };
        let Some(tags) = text.trim().strip_prefix("```") else { return false };
        is_in_block = !is_in_block;
        is_in_block
            && tags.split(',').all(|tag| matches!(tag, "" | "rust" | "no_run" | "should_panic" | "compile_fail"))
    })
}

/// Returns a file of a folder whose documentation has an example.
fn file_with_example(folder: &Path) -> Result<Option<PathBuf>> {
    for entry in read_dir(folder)? {
        let path = entry?.path();
        let found = match path.extension() {
            _ if path.is_dir() => file_with_example(&path)?,
            Some(end) if end == "rs" && has_example(&read_to_string(&path)?) => Some(path),
            _ => None,
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// rustdoc reads a whole member to find its examples. A member that says it has none is not read.
#[test]
fn members_without_examples_have_none() -> Result<()> {
    for folder in folders()? {
        let folder = root().join(folder);
        let has_doctests =
            manifest(&folder.join("Cargo.toml"))?.get("lib").and_then(|lib| lib.get("doctest")?.as_bool());
        if has_doctests == Some(false) {
            let found = file_with_example(&folder.join("src"))?;
            ensure!(found.is_none(), "{found:?} has an example; remove `doctest = false` from its Cargo.toml");
        }
    }
    assert!(has_example("/// ```\n/// f();\n/// ```"));
    assert!(!has_example("//! ```text\n//! f()\n//! ```"));
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

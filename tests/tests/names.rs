//! Checks the names of types: each type of the glossary in ARCHITECTURE.md is defined once, in the crate that the
//! glossary names, and names that stood for several things are gone.

use std::collections::BTreeMap;
use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Names that once stood for several things each.
const RETIRED: [&str; 4] = ["Place", "Places", "Wanted", "Run"];

/// The words with which the definition of a type begins.
const KEYWORDS: [&str; 4] = ["struct ", "enum ", "trait ", "type "];

/// Folders of crates without production code, and the crate of the tests.
const NOT_PRODUCTION: [&str; 4] = ["tests", "examples", "benches", "target"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// A type and where it is defined.
#[derive(Debug, PartialEq)]
struct Definition {
    name: String,
    line: usize,
    /// Whether it is a `struct`, an `enum` or a `trait`, and no alias.
    is_own: bool,
}

/// Adds the Rust files below a folder, except those of build outputs.
fn add_sources(folder: &Path, sources: &mut Vec<PathBuf>) -> Result<()> {
    for entry in read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            add_sources(&path, sources)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            sources.push(path.strip_prefix(root())?.to_path_buf());
        }
    }
    Ok(())
}

/// Returns the Rust files of all members, relative to the root.
fn sources() -> Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    for folder in ["crates", "clients/python", "tests"] {
        add_sources(&root().join(folder), &mut sources)?;
    }
    sources.sort();
    ensure!(sources.len() >= 400, "only {} Rust files were found", sources.len());
    Ok(sources)
}

fn is_production(source: &Path) -> bool {
    let is_test = source.file_name().is_some_and(|name| name == "tests.rs");
    !is_test && !source.iter().any(|part| NOT_PRODUCTION.iter().any(|folder| part == *folder))
}

/// Returns the definition with which a line begins.
fn definition(code: &str, line: usize) -> Option<Definition> {
    let public = code.strip_prefix("pub(").and_then(|rest| rest.split_once(") ")).map(|(_, rest)| rest);
    let code = public.or_else(|| code.strip_prefix("pub ")).unwrap_or(code);
    let code = code.strip_prefix("unsafe ").unwrap_or(code);
    let keyword = KEYWORDS.into_iter().find(|keyword| code.starts_with(keyword))?;
    let rest = &code[keyword.len()..];
    let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    Some(Definition { name: rest[..length].to_string(), line, is_own: keyword != "type " })
}

/// Returns the types that a file defines, without items under `#[cfg(test)]` unless `with_tests` is set.
fn definitions(text: &str, with_tests: bool) -> Vec<Definition> {
    let (mut found, mut lines) = (Vec::new(), text.lines().enumerate());
    while let Some((index, line)) = lines.next() {
        let code = line.trim_start();
        if code.starts_with("#[cfg(test)]") && !with_tests {
            // The item ends with its first line, or with a brace that is indented as the attribute is.
            let end = format!("{}}}", &line[..line.len() - code.len()]);
            let item = lines.by_ref().map(|(_, line)| line).find(|line| !line.trim_start().starts_with("#["));
            if item.is_some_and(|item| item.ends_with('{')) {
                lines.by_ref().find(|(_, line)| *line == end);
            }
        } else {
            found.extend(definition(code, index + 1));
        }
    }
    found
}

/// Returns the library that a file belongs to.
fn library(source: &Path) -> String {
    let folder = source.iter().nth(1).unwrap_or_default().to_string_lossy();
    folder.replace('-', "_")
}

/// A type of the glossary, as `library::Name`.
struct Entry {
    library: String,
    name: String,
    /// The line of ARCHITECTURE.md.
    line: usize,
}

/// Returns the types of the glossary.
fn glossary() -> Result<Vec<Entry>> {
    let text = read_to_string(root().join("ARCHITECTURE.md"))?;
    let words = text.lines().enumerate().skip_while(|(_, line)| *line != "## Words").skip(1);
    let rows = words.take_while(|(_, line)| !line.starts_with("## ")).filter(|(_, line)| line.starts_with('|'));
    let mut types = Vec::new();
    for (index, row) in rows.skip(2) {
        let (cells, line): (Vec<&str>, usize) = (row.trim_matches('|').split('|').collect(), index + 1);
        ensure!(cells.len() == 3, "ARCHITECTURE.md:{line}: {} cells instead of three", cells.len());
        for path in cells[2].split('`').skip(1).step_by(2) {
            let split = path.split_once("::").map(|(library, name)| (library.to_string(), name.to_string()));
            let (library, name) = split.with_context(|| format!("ARCHITECTURE.md:{line}: {path} names no crate"))?;
            types.push(Entry { library, name, line });
        }
    }
    ensure!(types.len() >= 30, "the glossary of ARCHITECTURE.md names only {} types", types.len());
    Ok(types)
}

/// Returns what is wrong with the types of the glossary. `defined` has the files and lines that define each name.
fn wrong_types(types: &[Entry], defined: &BTreeMap<String, Vec<(PathBuf, usize)>>) -> Vec<String> {
    let mut problems = Vec::new();
    for Entry { library: wanted, name, line } in types {
        let places = defined.get(name).map(Vec::as_slice).unwrap_or_default();
        let count = places.iter().filter(|(file, _)| library(file) == *wanted).count();
        if count != 1 {
            problems.push(format!("ARCHITECTURE.md:{line}: {wanted} defines {name} {count} times"));
        }
        for (file, at) in places {
            if !types.iter().any(|entry| entry.name == *name && entry.library == library(file)) {
                problems.push(format!("{}:{at}: {name} is a word of ARCHITECTURE.md:{line}", file.display()));
            }
        }
    }
    problems
}

#[test]
fn each_type_of_the_glossary_is_defined_once() -> Result<()> {
    let mut defined: BTreeMap<String, Vec<(PathBuf, usize)>> = BTreeMap::new();
    for source in sources()?.iter().filter(|source| is_production(source)) {
        let text = read_to_string(root().join(source))?;
        for Definition { name, line, .. } in definitions(&text, false).into_iter().filter(|found| found.is_own) {
            defined.entry(name).or_default().push((source.clone(), line));
        }
    }
    let problems = wrong_types(&glossary()?, &defined);
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

#[test]
fn wrong_types_are_found() {
    let entry = |library: &str| Entry { library: library.into(), name: "Lake".into(), line: 7 };
    let at = |file: &str| (PathBuf::from(file), 3);
    let both = [at("crates/stoker-lake/src/lake.rs"), at("crates/stoker-session/src/lake.rs")];
    let defined = BTreeMap::from([("Lake".to_string(), both.to_vec())]);
    let (lake, session) = (entry("stoker_lake"), entry("stoker_session"));
    assert_eq!(
        wrong_types(&[entry("stoker_sql")], &BTreeMap::new()),
        ["ARCHITECTURE.md:7: stoker_sql defines Lake 0 times"]
    );
    assert_eq!(
        wrong_types(std::slice::from_ref(&lake), &defined),
        ["crates/stoker-session/src/lake.rs:3: Lake is a word of ARCHITECTURE.md:7"]
    );
    assert_eq!(wrong_types(&[lake, session], &defined), [] as [&str; 0]);
}

#[test]
fn words_of_the_glossary_are_defined_once() -> Result<()> {
    let text = read_to_string(root().join("ARCHITECTURE.md"))?;
    let words = text.lines().enumerate().skip_while(|(_, line)| *line != "## Words").skip(1);
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, row) in words.take_while(|(_, line)| !line.starts_with("## ")).filter(|(_, line)| line.starts_with('|'))
    {
        let word = row.trim_matches('|').split('|').next().unwrap_or("").trim();
        let before = seen.insert(word, index + 1);
        ensure!(before.is_none(), "ARCHITECTURE.md:{}: {word:?} is in line {before:?} too", index + 1);
    }
    Ok(())
}

#[test]
fn retired_names_are_gone() -> Result<()> {
    let mut problems = Vec::new();
    for source in sources()? {
        let text = read_to_string(root().join(&source))?;
        let retired = |found: &Definition| RETIRED.contains(&found.name.as_str());
        for Definition { name, line, .. } in definitions(&text, true).into_iter().filter(retired) {
            problems.push(format!("{}:{line}: a type is called {name}", source.display()));
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

#[test]
fn definitions_are_found() {
    let text = "pub(crate) struct One<T>(T);\n#[cfg(test)]\nmod tests {\n    enum Two {\n    }\n}\n    unsafe trait Three {}\n\
                #[cfg(test)]\nmod more;\npub type Four = u8;\n// struct Five;\n";
    let names = |with_tests| {
        let found = definitions(text, with_tests).into_iter();
        found.map(|found| format!("{}:{}", found.name, found.line)).collect::<Vec<_>>()
    };
    assert_eq!(names(false), ["One:1", "Three:7", "Four:10"]);
    assert_eq!(names(true), ["One:1", "Two:4", "Three:7", "Four:10"]);
}

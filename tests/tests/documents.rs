//! Checks the documents: links and anchors resolve, ARCHITECTURE.md names files and functions that exist, and sentences
//! are not riddles.
//!
//! ARCHITECTURE.md names code in the tables of three sections, in the columns `code`, `test` and `where`, and in the steps
//! of "The path of a byte". A path stands in backticks, and names that its file defines stand in parentheses after it:
//! `path.rs` (`name`, `other`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{read_dir, read_to_string};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The tasks of the section "Eleven tasks", in order.
const TASKS: [&str; 11] = [
    "add a column kind",
    "add an ingest source",
    "add an action (call)",
    "add a loader (framework adapter)",
    "add a statement that changes a lake",
    "add an index kind",
    "change the shuffle window",
    "change the retry rule",
    "change the ticket",
    "trace a slow step",
    "find a figure's command",
];

/// Paths of ARCHITECTURE.md that begin so are relative to the root, whatever the heading says.
const FROM_ROOT: [&str; 6] = [".ci/", "clients/", "crates/", "docker/", "sql/", "tests/tests/"];

/// The endings of file names by which a text in backticks is a path.
const ENDINGS: [&str; 9] = [".rs", ".py", ".pyi", ".md", ".proto", ".slt", ".toml", ".txt", ".yaml"];

/// The columns of tables that name paths.
const PATH_COLUMNS: [&str; 3] = ["code", "test", "where"];

/// Parts of sentences that a reader must solve like a riddle, in lower case.
const RIDDLES: [&str; 6] = [
    "which they are, as soon as",
    "does not wait any more ends its turn",
    "ends its turn as one who got it",
    "a stream that is ahead of its time",
    "gets a small part beside them",
    "their place, but for so many bytes",
];

/// The words before a name where the file defines the name.
const KEYWORDS: [&str; 12] =
    ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "macro_rules", "def", "class", "message"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// A line of a document that is not inside a code block.
struct Line {
    number: usize,
    text: String,
}

/// A cell of a table that names paths.
struct Cell {
    /// The number of the line.
    number: usize,
    /// The folder to which paths are relative.
    base: String,
    text: String,
}

/// A path or a name in a cell.
enum Mention<'a> {
    Path(&'a str),
    /// A name that the file of the path before it defines.
    Name(&'a str),
}

/// Returns the documents for users and developers, relative to the root.
fn documents() -> Result<Vec<PathBuf>> {
    let mut documents: Vec<PathBuf> = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"].map(PathBuf::from).into();
    for entry in read_dir(root().join("docs"))? {
        let path = Path::new("docs").join(entry?.file_name());
        if path.extension().is_some_and(|ending| ending == "md") {
            documents.push(path);
        }
    }
    documents.sort();
    ensure!(documents.len() >= 8, "only {} documents were found", documents.len());
    Ok(documents)
}

/// Returns the lines of a document without those of code blocks, which keep their numbers.
fn lines(document: &Path) -> Result<Vec<Line>> {
    let text = read_to_string(root().join(document)).with_context(|| document.display().to_string())?;
    let mut is_code = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push(Line { number: index + 1, text: line.to_string() });
        }
    }
    Ok(lines)
}

/// Fails with one line for each problem.
fn ensure_none(problems: Vec<String>) -> Result<()> {
    ensure!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    Ok(())
}

/// Returns the targets of the links in a line. Links in code spans are none.
fn targets(line: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    for (at, _) in line.match_indices("](") {
        let is_code = line[..at].matches('`').count() % 2 == 1 && line[at..].contains('`');
        if let (Some((target, _)), false) = (line[at + 2..].split_once(')'), is_code) {
            targets.push(target);
        }
    }
    targets
}

/// Returns the anchor that GitHub gives a heading: lower case, without punctuation, with hyphens for spaces.
fn anchor(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading.trim();
    while let Some((before, link)) = rest.split_once("](") {
        text.push_str(before);
        rest = link.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let is_kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    text.to_lowercase().chars().filter(is_kept).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns the anchors of a document. Repeated headings get numbers.
fn anchors(document: &Path) -> Result<BTreeSet<String>> {
    let mut anchors = BTreeSet::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for line in lines(document)? {
        let heading = line.text.trim_start_matches('#');
        let level = line.text.len() - heading.len();
        if (1..=6).contains(&level) && heading.starts_with(' ') {
            let anchor = anchor(heading);
            let count = counts.entry(anchor.clone()).or_default();
            anchors.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
            *count += 1;
        }
    }
    Ok(anchors)
}

/// Resolves `..` in a path relative to the root. Returns `None` for a path that leaves it.
fn resolved(path: &Path) -> Option<PathBuf> {
    let mut resolved = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir if !resolved.pop() => return None,
            Component::ParentDir | Component::CurDir => {}
            component => resolved.push(component),
        }
    }
    Some(resolved)
}

/// Returns what is wrong with a link of a document.
fn wrong_link(document: &Path, target: &str) -> Result<Option<String>> {
    if ["http://", "https://", "mailto:"].iter().any(|scheme| target.starts_with(scheme)) {
        return Ok(None);
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let file = match path {
        "" => Some(document.to_path_buf()),
        path => resolved(&document.parent().unwrap_or(Path::new("")).join(path)),
    };
    let Some(file) = file.filter(|file| root().join(file).exists()) else {
        return Ok(Some(format!("{path} does not exist")));
    };
    Ok(match anchor {
        Some(anchor) if !anchors(&file)?.contains(anchor) => {
            Some(format!("{} has no heading with the anchor #{anchor}", file.display()))
        }
        _ => None,
    })
}

#[test]
fn links_and_anchors_resolve() -> Result<()> {
    let (mut problems, mut num_links) = (Vec::new(), 0);
    for document in documents()? {
        for line in lines(&document)? {
            for target in targets(&line.text) {
                num_links += 1;
                if let Some(problem) = wrong_link(&document, target)? {
                    problems.push(format!("{}:{}: {problem}", document.display(), line.number));
                }
            }
        }
    }
    ensure!(num_links >= 50, "only {num_links} links were found");
    ensure_none(problems)
}

#[test]
fn anchors_are_those_of_github() {
    assert_eq!(anchor(" 10. Every sample, `named`"), "10-every-sample-named");
    assert_eq!(anchor(" The client's DoGet has an HTTP/2"), "the-clients-doget-has-an-http2");
    assert_eq!(anchor(" A [link](x.md) – and_more"), "a-link--and_more");
}

/// Returns the cells of a row of a table. A `|` in a code span belongs to its cell.
fn cells(row: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut is_code = false;
    for character in row.trim().trim_start_matches('|').trim_end_matches('|').chars() {
        is_code ^= character == '`';
        match cells.last_mut() {
            Some(cell) if character != '|' || is_code => cell.push(character),
            _ => cells.push(String::new()),
        }
    }
    cells.iter().map(|cell| cell.trim().to_string()).collect()
}

/// Returns the lines of a section of ARCHITECTURE.md.
fn section(heading: &str) -> Result<Vec<Line>> {
    let lines = lines(Path::new("ARCHITECTURE.md"))?.into_iter();
    let after = lines.skip_while(|line| line.text != format!("## {heading}")).skip(1);
    let section: Vec<Line> = after.take_while(|line| !line.text.starts_with("## ")).collect();
    ensure!(!section.is_empty(), "ARCHITECTURE.md has no section {heading:?}");
    Ok(section)
}

/// Returns the cells of a section that name paths. A heading `### Title — ˋfolderˋ` sets their folder.
fn path_cells(heading: &str) -> Result<Vec<Cell>> {
    let (mut base, mut columns, mut found) = (String::new(), Vec::new(), Vec::new());
    for Line { number, text } in section(heading)? {
        if let Some((_, folder)) = text.strip_prefix("### ").and_then(|title| title.split_once(" — ")) {
            base = folder.trim_matches('`').to_string();
        }
        if !text.starts_with('|') {
            columns.clear();
        } else if columns.is_empty() {
            columns = cells(&text);
        } else {
            let named = cells(&text).into_iter().zip(&columns);
            let cells = named.filter(|(_, column)| PATH_COLUMNS.contains(&column.as_str()));
            found.extend(cells.map(|(text, _)| Cell { number, base: base.clone(), text }));
        }
    }
    Ok(found)
}

/// Returns the items of the numbered lists of a section, with their first lines. Their paths are relative to the root.
fn steps(heading: &str) -> Result<Vec<Cell>> {
    let mut steps: Vec<Cell> = Vec::new();
    for Line { number, text } in section(heading)? {
        let is_step = text.split_once(". ").is_some_and(|(start, _)| start.parse::<u32>().is_ok());
        match steps.last_mut() {
            _ if is_step => steps.push(Cell { number, base: String::new(), text }),
            Some(step) if text.starts_with(' ') => step.text = format!("{} {}", step.text, text.trim_start()),
            _ => {}
        }
    }
    Ok(steps)
}

fn is_path(code: &str) -> bool {
    let is_file = ENDINGS.iter().any(|ending| code.ends_with(ending));
    !code.contains(' ') && (code.contains('/') || is_file)
}

/// Returns the paths and names in a cell, in order. Other code outside parentheses is neither.
fn mentions(cell: &str) -> Vec<Mention<'_>> {
    let (mut mentions, mut depth) = (Vec::new(), 0usize);
    for (index, piece) in cell.split('`').enumerate() {
        if index % 2 == 0 {
            depth = (depth + piece.matches('(').count()).saturating_sub(piece.matches(')').count());
        } else if depth > 0 {
            mentions.push(Mention::Name(piece));
        } else if is_path(piece) {
            mentions.push(Mention::Path(piece));
        }
    }
    mentions
}

/// Returns whether a line of the text defines the name. A name at the start of a line, before `=` or `:`, is a constant
/// of Python.
fn defines(text: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.lines().any(|line| {
        let code = line.trim_start();
        let words: Vec<&str> = code.split(|c| !is_word(c)).filter(|word| !word.is_empty()).collect();
        let is_constant = line.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with(['=', ':']));
        let is_defined = words.windows(2).any(|pair| KEYWORDS.contains(&pair[0]) && pair[1] == name);
        is_constant || (is_defined && !code.starts_with("//") && !code.starts_with('#'))
    })
}

/// Returns what is wrong with the paths and names of a cell.
fn wrong_mentions(cell: &Cell) -> Vec<String> {
    let (mut problems, mut file) = (Vec::new(), None);
    for mention in mentions(&cell.text) {
        let problem = match mention {
            Mention::Path(path) => {
                let is_from_root = cell.base.is_empty() || FROM_ROOT.iter().any(|start| path.starts_with(start));
                let path = if is_from_root { PathBuf::from(path) } else { Path::new(&cell.base).join(path) };
                let is_missing = !root().join(&path).exists();
                let problem = is_missing.then(|| format!("{} does not exist", path.display()));
                file = Some(path);
                problem
            }
            Mention::Name(name) => match &file {
                None => Some(format!("no path stands before the name {name}")),
                Some(file) => {
                    let text = read_to_string(root().join(file)).unwrap_or_default();
                    (!defines(&text, name)).then(|| format!("{} does not define {name}", file.display()))
                }
            },
        };
        problems.extend(problem.map(|problem| format!("ARCHITECTURE.md:{}: {problem}", cell.number)));
    }
    problems
}

fn check_paths(heading: &str, num_cells_min: usize) -> Result<()> {
    let cells = path_cells(heading)?;
    ensure!(cells.len() >= num_cells_min, "{heading:?} has only {} cells with paths", cells.len());
    ensure_none(cells.iter().flat_map(wrong_mentions).collect())
}

#[test]
fn the_files_of_behaviours_exist_and_define_their_names() -> Result<()> {
    check_paths("Where is …?", 400)
}

#[test]
fn the_files_of_the_eleven_tasks_exist_and_define_their_names() -> Result<()> {
    check_paths("Eleven tasks", 40)
}

#[test]
fn the_files_of_the_traits_exist_and_define_their_names() -> Result<()> {
    check_paths("A lake, local or remote", 5)
}

#[test]
fn each_step_of_a_byte_names_code() -> Result<()> {
    let steps = steps("The path of a byte")?;
    ensure!(steps.len() >= 25, "the path of a byte has only {} steps", steps.len());
    ensure_none(steps.iter().flat_map(wrong_mentions).collect())
}

#[test]
fn the_eleven_tasks_are_there_and_each_names_code() -> Result<()> {
    let mut tasks: BTreeMap<String, usize> = BTreeMap::new();
    let mut order = Vec::new();
    for line in section("Eleven tasks")?.iter().filter(|line| line.text.starts_with('|')).skip(2) {
        let row = cells(&line.text);
        ensure!(row.len() == 2, "ARCHITECTURE.md:{}: {} cells instead of task and where", line.number, row.len());
        if !row[0].is_empty() {
            order.push(row[0].clone());
        }
        let task = order.last().with_context(|| format!("ARCHITECTURE.md:{}: a step without a task", line.number))?;
        let names = mentions(&row[1]).iter().filter(|mention| matches!(mention, Mention::Name(_))).count();
        *tasks.entry(task.clone()).or_default() += names;
    }
    ensure!(order == TASKS, "the tasks in ARCHITECTURE.md are {order:?}");
    for (task, names) in tasks {
        ensure!(names >= 3, "ARCHITECTURE.md: the task {task:?} names only {names} functions and types");
    }
    Ok(())
}

/// Returns the riddles that begin in the first of the lines, and may end in the next one.
fn riddles(first: &str, second: &str) -> Vec<&'static str> {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let first = words(first);
    let both = format!("{first} {}", words(second));
    let begins_in_first = |riddle: &&str| both.find(*riddle).is_some_and(|at| at < first.len());
    RIDDLES.into_iter().filter(begins_in_first).collect()
}

#[test]
fn documents_have_no_riddles() -> Result<()> {
    let mut problems = Vec::new();
    for document in documents()? {
        let lines = lines(&document)?;
        for (index, line) in lines.iter().enumerate() {
            let next = lines.get(index + 1).map_or("", |line| line.text.as_str());
            for riddle in riddles(&line.text, next) {
                problems.push(format!("{}:{}: a riddle: {riddle:?}", document.display(), line.number));
            }
        }
    }
    ensure_none(problems)
}

#[test]
fn wrong_documents_are_found() -> Result<()> {
    ensure!(riddles("so: A stream that is", "ahead  of its time gets") == ["a stream that is ahead of its time"]);
    ensure!(wrong_link(Path::new("docs/usage.md"), "nowhere.md")?.is_some());
    ensure!(wrong_link(Path::new("docs/usage.md"), "../README.md#nowhere")?.is_some());
    ensure!(wrong_link(Path::new("docs/usage.md"), "../README.md#install")?.is_none());
    let cell = |text: &str| Cell { number: 1, base: "tests".into(), text: text.into() };
    ensure!(wrong_mentions(&cell("`src/lib.rs` (`run`, `Server`)")).is_empty());
    ensure!(wrong_mentions(&cell("`src/lib.rs` (`runs`)")).len() == 1);
    ensure!(wrong_mentions(&cell("`src/lib.py`; `src/libs/`")).len() == 2);
    ensure!(wrong_mentions(&cell("(`run`)")).len() == 1);
    Ok(())
}

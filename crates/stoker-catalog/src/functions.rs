//! The functions that queries may call.

use datafusion::catalog::Session;
use datafusion::logical_expr::Documentation;
use stoker_functions::refused;

/// Functions whose names begin so are parameters and other parts of a plan.
const INTERNAL: [&str; 2] = ["__", "$"];

/// A function as `functions()` shows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Function {
    pub name: String,
    pub function_type: &'static str,
    pub syntax: Option<String>,
    pub description: Option<String>,
}

/// The table functions: syntax and description.
const OF_TABLES: [(&str, &str); 12] = [
    ("branches(table)", "The branches of a table"),
    ("columns(table)", "The columns of a table: their types, and their kinds, such as a tensor or an encoded image"),
    ("functions()", "The functions that queries may call"),
    (
        "hybrid_search(table, vector_column, query, text_column, words, k => 10, weights => [1, 1], rrf_k => 60)",
        "The rows of a table that a search for vectors and a search for words rank best, with columns _distance, _score \
         and _rank",
    ),
    ("indexes(table)", "The indexes of a table, and how many rows each covers"),
    ("row_ids(table)", "The rows of a table, with a column row_id of row addresses"),
    ("rows(parameter)", "The rows of a parameter that is a list of structs, whose fields are the columns"),
    ("tags(table)", "The tags of a table"),
    (
        "text_search(table, column, words, k => 10)",
        "The rows of a table whose texts match the words best, with a column _score",
    ),
    ("unnest(list)", "A row for each value of a list"),
    (
        "vector_search(table, column, query, k => 10, metric => 'l2')",
        "The rows of a table whose vectors are nearest to the query, with a column _distance",
    ),
    ("versions(table)", "The versions of a table, and their tags"),
];

/// The names of the table functions, for messages.
pub fn table_functions() -> String {
    OF_TABLES.map(|(syntax, _)| name_of(syntax)).join(", ")
}

/// Lists the functions of a session by name.
pub(crate) fn functions(state: &dyn Session) -> Vec<Function> {
    let of_tables = OF_TABLES.map(|(syntax, description)| Function {
        name: name_of(syntax).to_string(),
        function_type: "TABLE",
        syntax: Some(syntax.to_string()),
        description: Some(description.to_string()),
    });
    let mut found = of_tables.to_vec();
    let mut add = |name: &String, function_type, documentation: Option<&Documentation>| {
        if INTERNAL.iter().any(|prefix| name.starts_with(prefix)) || refused(name).is_some() {
            return;
        }
        found.push(Function {
            name: name.clone(),
            function_type,
            syntax: documentation.map(|documentation| documentation.syntax_example.clone()),
            description: documentation.map(|documentation| documentation.description.clone()),
        });
    };
    for (name, function) in state.scalar_functions() {
        add(name, "SCALAR", function.documentation());
    }
    for (name, function) in state.aggregate_functions() {
        add(name, "AGGREGATE", function.documentation());
    }
    for (name, function) in state.window_functions() {
        add(name, "WINDOW", function.documentation());
    }
    found.sort();
    found
}

fn name_of(syntax: &str) -> &str {
    syntax.split('(').next().unwrap_or(syntax)
}

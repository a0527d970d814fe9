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
const OF_TABLES: [(&str, &str); 9] = [
    ("branches(table)", "The branches of a table"),
    ("columns(table)", "The columns of a table: their types, and their kinds, such as a tensor or an encoded image"),
    ("functions()", "The functions that queries may call"),
    ("indexes(table)", "The indexes of a table, and how many rows each covers"),
    ("row_ids(table)", "The rows of a table, with a column row_id of row addresses"),
    ("tags(table)", "The tags of a table"),
    ("unnest(list)", "A row for each value of a list"),
    (
        "vector_search(table, column, query, k => 10, metric => 'l2')",
        "The rows of a table whose vectors are nearest to the query, with a column _distance",
    ),
    ("versions(table)", "The versions of a table, and their tags"),
];

/// Functions of Stoker, which DataFusion does not document: syntax and description.
const OF_STOKER: [(&str, &str); 6] = [
    ("cosine_distance(vector, vector)", "One minus the cosine of the angle between two vectors; also: <=>"),
    ("dot_product(vector, vector)", "The sum of the products of the values of two vectors"),
    ("l2_distance(vector, vector)", "The Euclidean distance between two vectors, with the square root; also: <->"),
    ("negative_inner_product(vector, vector)", "Minus the dot product of two vectors; also: <#>"),
    ("tensor_mean(tensor)", "The mean of the values of a tensor"),
    ("tensor_shape(tensor)", "The shape of a tensor"),
];

/// The names of the table functions, for messages.
pub fn table_functions() -> String {
    OF_TABLES.map(|(syntax, _)| name_of(syntax)).join(", ")
}

/// Lists the functions of a session by name.
pub(crate) fn functions(state: &dyn Session) -> Vec<Function> {
    let of_tables = OF_TABLES.map(|(syntax, description)| described(syntax, "TABLE", description));
    let mut found = of_tables.to_vec();
    let mut add = |name: &String, function_type, documentation: Option<&Documentation>| {
        if INTERNAL.iter().any(|prefix| name.starts_with(prefix)) || refused(name).is_some() {
            return;
        }
        let own = OF_STOKER.iter().find(|(syntax, _)| name_of(syntax) == name);
        found.push(match (own, documentation) {
            (Some((syntax, description)), _) => described(syntax, function_type, description),
            (None, documentation) => Function {
                name: name.clone(),
                function_type,
                syntax: documentation.map(|documentation| documentation.syntax_example.clone()),
                description: documentation.map(|documentation| documentation.description.clone()),
            },
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

fn described(syntax: &str, function_type: &'static str, description: &str) -> Function {
    Function {
        name: name_of(syntax).to_string(),
        function_type,
        syntax: Some(syntax.to_string()),
        description: Some(description.to_string()),
    }
}

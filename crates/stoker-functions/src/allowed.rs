//! The functions that queries may call, and a rule for the size of each function's result.
//!
//! A function that is on no list is not available, so that a newer DataFusion does not add functions unnoticed.

use datafusion::execution::FunctionRegistry as _;
use datafusion::execution::context::SessionContext;

use crate::cost::{self, Call, Cost};

/// The bound on the size of a function's result.
#[derive(Clone, Copy)]
pub(crate) enum Size {
    /// A value of bounded width, or an unchanged argument.
    Bounded,
    /// A text or a list. Its bytes are reserved by this estimate before the function runs.
    Reserved(fn(&Call) -> Cost),
}

/// Scalar functions whose results have bounded width: numbers, times, digests, shapes, names of formats.
const FIXED: [&str; 102] = [
    "abs",
    "acos",
    "acosh",
    "array_dims",
    "array_distance",
    "array_has",
    "array_length",
    "array_ndims",
    "array_position",
    "arrow_field",
    "arrow_metadata",
    "arrow_typeof",
    "ascii",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bit_length",
    "cardinality",
    "cbrt",
    "ceil",
    "character_length",
    "chr",
    "contains",
    "cos",
    "cosh",
    "cosine_distance",
    "cosine_similarity",
    "cot",
    "current_date",
    "current_time",
    "date_bin",
    "date_part",
    "date_trunc",
    "degrees",
    "digest",
    "dot_product",
    "empty",
    "ends_with",
    "exp",
    "factorial",
    "find_in_set",
    "floor",
    "from_unixtime",
    "gcd",
    "image_format",
    "image_height",
    "image_width",
    "inner_product",
    "isnan",
    "iszero",
    "l2_distance",
    "lcm",
    "ln",
    "log",
    "log10",
    "log2",
    "make_date",
    "make_time",
    "matches",
    "md5",
    "nanvl",
    "negative_inner_product",
    "now",
    "octet_length",
    "pi",
    "power",
    "radians",
    "random",
    "round",
    "sha224",
    "sha256",
    "sha384",
    "sha512",
    "signum",
    "sin",
    "sinh",
    "sqrt",
    "starts_with",
    "strpos",
    "tan",
    "tanh",
    "tensor_max",
    "tensor_mean",
    "tensor_min",
    "tensor_norm",
    "tensor_shape",
    "tensor_std",
    "to_date",
    "to_hex",
    "to_local_time",
    "to_time",
    "to_timestamp",
    "to_timestamp_micros",
    "to_timestamp_millis",
    "to_timestamp_nanos",
    "to_timestamp_seconds",
    "to_unixtime",
    "trunc",
    "uuid",
    "version",
];

/// Scalar functions that return an argument, or parts of it.
const PASSING: [&str; 16] = [
    "arrow_cast",
    "arrow_try_cast",
    "cast_to_type",
    "coalesce",
    "get_field",
    "greatest",
    "least",
    "named_struct",
    "nullif",
    "nvl",
    "nvl2",
    "struct",
    "try_cast_to_type",
    "union_extract",
    "union_tag",
    "with_metadata",
];

/// Functions that are not available because their results can be any multiple of their arguments, with the reason.
const REFUSED: [(&str, &str); 9] = [
    ("repeat", "its result can be of any size"),
    ("array_repeat", "its result can be of any size"),
    ("list_repeat", "its result can be of any size"),
    ("array_resize", "its result can be of any size"),
    ("list_resize", "its result can be of any size"),
    ("arrays_zip", "it pads short lists with values that can be of any size"),
    ("list_zip", "it pads short lists with values that can be of any size"),
    ("generate_series", "its result can be of any size; join a table instead"),
    ("range", "its result can be of any size; join a table instead"),
];

/// Aggregates. Each reserves memory for its state after each batch.
const AGGREGATES: [&str; 46] = [
    "approx_distinct",
    "approx_median",
    "approx_percentile_cont",
    "approx_percentile_cont_with_weight",
    "array_agg",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "covar",
    "covar_pop",
    "covar_samp",
    "first_value",
    "grouping",
    "last_value",
    "max",
    "mean",
    "median",
    "min",
    "nth_value",
    "percentile_cont",
    "quantile_cont",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "string_agg",
    "sum",
    "var",
    "var_pop",
    "var_population",
    "var_samp",
    "var_sample",
    "vector_avg",
];

/// Window functions. Their operators reserve memory for the rows that they hold.
const WINDOWS: [&str; 11] = [
    "cume_dist",
    "dense_rank",
    "first_value",
    "lag",
    "last_value",
    "lead",
    "nth_value",
    "ntile",
    "percent_rank",
    "rank",
    "row_number",
];

/// Returns the rule for a scalar function by its own name (not an alias), or `None` for a function that is not
/// available.
pub(crate) fn size(name: &str) -> Option<Size> {
    if FIXED.contains(&name) || PASSING.contains(&name) {
        return Some(Size::Bounded);
    }
    let estimate: fn(&Call) -> Cost = match name {
        "array_any_value" | "array_compact" | "array_distinct" | "array_element" | "array_except"
        | "array_intersect" | "array_max" | "array_min" | "array_pop_back" | "array_pop_front" | "array_remove"
        | "array_remove_all" | "array_remove_n" | "array_reverse" | "array_slice" | "array_sort" | "btrim"
        | "decode" | "flatten" | "left" | "ltrim" | "map_keys" | "map_values" | "reverse" | "right" | "rtrim"
        | "split_part" | "substr" | "substr_index" => cost::same,
        "array_append" | "array_concat" | "array_prepend" | "array_union" | "concat" | "make_array" | "overlay" => {
            cost::joined
        }
        "array_normalize" | "map" | "map_entries" | "map_extract" | "array_positions" | "encode" => cost::eightfold,
        "array_has_all" | "array_has_any" => cost::all_pairs,
        "array_replace" | "array_replace_all" | "array_replace_n" => cost::replaced_elements,
        "array_to_string" => cost::listed,
        "cast_to_vector" => cost::vectors,
        "concat_ws" => cost::joined_with,
        "decompress" => cost::tensors,
        "initcap" | "lower" | "upper" | "translate" => cost::fourfold,
        "levenshtein" => cost::distance,
        "lpad" | "rpad" => cost::padded,
        "regexp_count" | "regexp_instr" | "regexp_like" => cost::searched,
        "regexp_match" => cost::captured,
        "regexp_replace" => cost::replaced_matches,
        "replace" => cost::replaced,
        "string_to_array" => cost::split,
        "to_char" => cost::formatted,
        _ => return None,
    };
    Some(Size::Reserved(estimate))
}

/// Returns why a function is not available, for functions of the list of refused ones.
pub fn refused(name: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(refused, _)| *refused == name).map(|(_, reason)| *reason)
}

/// Removes all functions from a session that are on no list.
pub(crate) fn keep_allowed(context: &SessionContext) {
    let state = context.state();
    for (name, function) in state.scalar_functions() {
        if size(function.name()).is_none() {
            context.deregister_udf(name);
        }
    }
    for name in context.udafs().iter().filter(|name| !AGGREGATES.contains(&name.as_str())) {
        context.deregister_udaf(name);
    }
    for name in context.udwfs().iter().filter(|name| !WINDOWS.contains(&name.as_str())) {
        context.deregister_udwf(name);
    }
    for name in state.table_functions().keys() {
        context.deregister_udtf(name);
    }
}

#[cfg(test)]
pub(crate) fn all_aggregates() -> impl Iterator<Item = &'static str> {
    AGGREGATES.into_iter()
}

#[cfg(test)]
pub(crate) fn all_windows() -> impl Iterator<Item = &'static str> {
    WINDOWS.into_iter()
}

//! Computes the size of a query in which each common table expression is expanded wherever it is named.
//!
//! The planner expands them: 24 common table expressions, each of which names the one before it twice, become sixteen
//! million.

use std::collections::VecDeque;

use datafusion::sql::sqlparser::ast::Query;

/// The queries that are being visited, outermost first.
#[derive(Default)]
pub(super) struct Expansion {
    queries: Vec<Expanding>,
}

/// A query that is being visited.
struct Expanding {
    num_nodes: usize,
    /// The names of its common table expressions that are not visited yet. They are its first direct subqueries, in
    /// this order.
    unknown: VecDeque<String>,
    /// The names and expanded sizes of its common table expressions that were visited.
    known: Vec<(String, usize)>,
}

impl Expansion {
    pub(super) fn enter(&mut self, query: &Query) {
        let names = query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| cte.alias.name.value.to_lowercase());
        self.queries.push(Expanding { num_nodes: 1, unknown: names.collect(), known: Vec::new() });
    }

    pub(super) fn leave(&mut self) {
        let (Some(done), Some(outer)) = (self.queries.pop(), self.queries.last_mut()) else { return };
        match outer.unknown.pop_front() {
            Some(name) => outer.known.push((name, done.num_nodes)),
            None => outer.num_nodes = outer.num_nodes.saturating_add(done.num_nodes),
        }
    }

    /// Counts a node of the innermost query, and returns the number of nodes that this query has so far.
    pub(super) fn count(&mut self) -> usize {
        self.add(1)
    }

    /// Counts the expanded size of the relation with this name: one node for a table.
    pub(super) fn count_relation(&mut self, name: &str) -> usize {
        let name = name.to_lowercase();
        let named = self.queries.iter().rev().flat_map(|query| query.known.iter().rev());
        let num_nodes = named.clone().find(|(known, _)| *known == name).map_or(1, |(_, num_nodes)| *num_nodes);
        self.add(num_nodes)
    }

    fn add(&mut self, num_nodes: usize) -> usize {
        let Some(query) = self.queries.last_mut() else { return 0 };
        query.num_nodes = query.num_nodes.saturating_add(num_nodes);
        query.num_nodes
    }
}

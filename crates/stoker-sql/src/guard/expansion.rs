//! The size of a query once each common table expression stands in all its places.
//!
//! The planner writes them out: 24 of them, each of which names the one before it twice, become sixteen million.

use std::collections::VecDeque;

use datafusion::sql::sqlparser::ast::Query;

/// Queries that are being visited, from the outermost on.
#[derive(Default)]
pub(super) struct Expansion {
    queries: Vec<Expanding>,
}

/// A query that is being visited.
struct Expanding {
    num_nodes: usize,
    /// Names of its common table expressions that are still to be visited: they are its first direct subqueries, in this order.
    unknown: VecDeque<String>,
    /// The nodes of those that were.
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

    /// Counts a node of the innermost query, and tells how many that has by now.
    pub(super) fn count(&mut self) -> usize {
        self.add(1)
    }

    /// Counts what a name stands for.
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

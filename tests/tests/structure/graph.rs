//! Directed graphs of names.

use std::collections::{BTreeMap, BTreeSet};

/// From each name to those it depends on.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

pub type Edge = (String, String);

/// All that can be reached from a name by at least one edge.
pub fn reached(graph: &Graph, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&String> = graph.get(from).into_iter().flatten().collect();
    while let Some(name) = next.pop() {
        if reached.insert(name.clone()) {
            next.extend(graph.get(name).into_iter().flatten());
        }
    }
    reached
}

/// The edges that do not follow from others. The graph must have no cycle.
pub fn reduced(graph: &Graph) -> BTreeSet<Edge> {
    let mut edges = BTreeSet::new();
    for (from, to) in graph {
        let implied = |name: &String| to.iter().any(|other| other != name && reached(graph, other).contains(name));
        edges.extend(to.iter().filter(|name| !implied(name)).map(|name| (from.clone(), name.clone())));
    }
    edges
}

/// The sets of names that reach one another, each with more than one name.
pub fn cycles(graph: &Graph) -> BTreeSet<BTreeSet<String>> {
    let from: BTreeMap<&String, BTreeSet<String>> = graph.keys().map(|name| (name, reached(graph, name))).collect();
    let both = |a: &String, b: &String| from[a].contains(b) && from.get(b).is_some_and(|back| back.contains(a));
    let cycle = |name: &String| graph.keys().filter(|other| *other == name || both(name, other)).cloned().collect::<BTreeSet<_>>();
    graph.keys().map(cycle).filter(|cycle| cycle.len() > 1).collect()
}

fn graph(edges: &[(&str, &str)]) -> Graph {
    let mut graph = Graph::new();
    for (from, to) in edges {
        graph.entry((*from).into()).or_default().insert((*to).into());
        graph.entry((*to).into()).or_default();
    }
    graph
}

#[test]
fn an_edge_that_follows_from_others_is_left_out() {
    let found = reduced(&graph(&[("c", "b"), ("b", "a"), ("c", "a"), ("d", "a")]));
    let expected = [("c", "b"), ("b", "a"), ("d", "a")].map(|(from, to)| (from.to_owned(), to.to_owned()));
    assert_eq!(found, BTreeSet::from(expected));
}

#[test]
fn names_that_reach_one_another_are_a_cycle() {
    let found = cycles(&graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("e", "f"), ("f", "e")]));
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
    assert_eq!(found, BTreeSet::from([set(&["a", "b", "c"]), set(&["e", "f"])]));
}

//! The numbers of all nodes, by which Pgpool-II's tools name them.
//!
//! **Invariant:** a node keeps its number as long as its name and that of its cluster stay.

use std::collections::BTreeMap;

use config::Config;

/// The numbers by cluster and node.
#[derive(Debug, Default)]
pub(super) struct Numbers(BTreeMap<(String, String), u32>);

impl Numbers {
    /// Numbers the nodes of a configuration. New ones get the lowest free numbers, in the order of the
    /// file.
    pub(super) fn follow(&mut self, config: &Config) {
        let of = |cluster: &String| {
            let nodes = config.clusters.get(cluster).map_or(&[][..], |own| &own.nodes);
            nodes.iter().map(|node| (cluster.clone(), node.name.clone())).collect::<Vec<_>>()
        };
        let names: Vec<_> = config.cluster_order.iter().flat_map(of).collect();
        self.0.retain(|known, _| names.contains(known));
        for (cluster, node) in names {
            self.of(&cluster, &node);
        }
    }

    /// Returns the number of a node. A node that is not known yet gets the lowest free number.
    pub(super) fn of(&mut self, cluster: &str, node: &str) -> u32 {
        let is_free = |number: &u32| !self.0.values().any(|own| own == number);
        let free = (0..).find(is_free).unwrap_or_default();
        *self.0.entry((cluster.to_owned(), node.to_owned())).or_insert(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(numbers: &mut Numbers, clusters: &str) -> Vec<(String, u32)> {
        let text = format!("[pgbouncer]\n[clusters]\n{clusters}");
        let config = Config::parse_ini(&text, "test.ini", &|_| unreachable!("no file"));
        numbers.follow(&config.expect("it is valid"));
        let mut all: Vec<_> =
            numbers.0.iter().map(|((_, node), number)| (node.clone(), *number)).collect();
        all.sort_by_key(|(_, number)| *number);
        all
    }

    #[test]
    fn names_that_stay_keep_their_numbers() {
        let mut numbers = Numbers::default();
        let mut check = |clusters: &str, expected: &[(&str, u32)]| {
            let expected: Vec<_> =
                expected.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect();
            assert_eq!(numbered(&mut numbers, clusters), expected, "{clusters}");
        };
        check("z = nodes='a=h1, b=h2'\nc = nodes='d=h3'\n", &[("a", 0), ("b", 1), ("d", 2)]);
        // Another order, and another address.
        check("c = nodes='d=h3'\nz = nodes='b=h4, a=h1'\n", &[("a", 0), ("b", 1), ("d", 2)]);
        check("c = nodes='d=h3'\nz = nodes='a=h1'\n", &[("a", 0), ("d", 2)]);
        check(
            "c = nodes='e=h5, d=h3, f=h6'\nz = nodes='a=h1'\n",
            &[("a", 0), ("e", 1), ("d", 2), ("f", 3)],
        );
    }
}

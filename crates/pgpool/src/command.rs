//! Commands of Pgpool-II with their `%` escapes, for Weir's shell with variables.

use crate::cluster::Node;

/// Returns a command for `rejoin_command`. There, the old primary is the node that Pgpool-II's command
/// would be about.
pub(crate) fn converted(command: &str, nodes: &[Node]) -> String {
    let mut converted = String::new();
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            converted.push(c);
            continue;
        }
        match chars.next() {
            Some('%') => converted.push('%'),
            // The names of nodes end with their numbers.
            Some('d' | 'M' | 'P') => converted += "${WEIR_NODE#node}",
            Some('m') => converted += "${WEIR_NEW_NODE#node}",
            Some('h' | 'N') => converted += "$WEIR_HOST",
            Some('p' | 'S') => converted += "$WEIR_PORT",
            Some('H') => converted += "$WEIR_NEW_HOST",
            Some('r') => converted += "$WEIR_NEW_PORT",
            Some('D') => converted += &folder("WEIR_NODE", nodes),
            Some('R') => converted += &folder("WEIR_NEW_NODE", nodes),
            Some(other) => {
                converted.push('%');
                converted.push(other);
            }
            None => converted.push('%'),
        }
    }
    converted
}

/// Returns the data directory of the node that a variable names.
fn folder(variable: &str, nodes: &[Node]) -> String {
    let Some(first) = nodes.first() else { return String::new() };
    if nodes.iter().all(|node| node.folder == first.folder) {
        return first.folder.clone();
    }
    let cases = nodes.iter().map(|node| format!("({}) echo {};;", node.name(), word(&node.folder)));
    let cases: Vec<_> = cases.collect();
    format!("$(case ${variable} in {} esac)", cases.join(" "))
}

/// Returns a word for the shell.
fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '.');
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_variables_of_the_shell() {
        let same = [Node::of(0, "/srv"), Node::of(1, "/srv")];
        let other = [Node::of(0, "/srv/0"), Node::of(1, "/it's")];
        let both = "$(case $WEIR_NODE in (node0) echo /srv/0;; (node1) echo '/it'\\''s';; esac)";
        let cases = [
            ("f %d %m", &same, "f ${WEIR_NODE#node} ${WEIR_NEW_NODE#node}"),
            ("\"%h:%p\" %H %r", &same, "\"$WEIR_HOST:$WEIR_PORT\" $WEIR_NEW_HOST $WEIR_NEW_PORT"),
            ("%N %S %M %P", &same, "$WEIR_HOST $WEIR_PORT ${WEIR_NODE#node} ${WEIR_NODE#node}"),
            ("%D/x %R", &same, "/srv/x /srv"),
            ("%D", &other, both),
            ("100%% %x %", &same, "100% %x %"),
        ];
        for (command, nodes, expected) in cases {
            assert_eq!(converted(command, nodes), expected, "{command}");
        }
    }
}

//! The manual page weir.ini(5), in the language of man(7): `weir help --manual`.

use std::fmt::Write;

use crate::WEIR_VERSION;
use crate::help;
use crate::key::{Key, Scope};

/// Returns the whole page.
pub fn manual() -> String {
    let mut page = format!(".TH WEIR.INI 5 \"\" \"Weir {WEIR_VERSION}\"\n");
    page += INTRODUCTION;
    for (scope, title, section) in SECTIONS {
        let _ = write!(page, ".SH {title}\n{section}\n");
        for key in Key::all().filter(|key| key.scope == scope) {
            page += &entry(key);
        }
    }
    page += END;
    page
}

const INTRODUCTION: &str = r#".SH NAME
weir.ini \- configuration of the connection pooler weir
.SH DESCRIPTION
.BR weir (1)
reads a
.I pgbouncer.ini
(also by the name
.IR weir.ini )
and its own
.IR weir.toml .
Both have the same keys. In the first form the global keys are in the section
.BR [pgbouncer] ;
in
.I weir.toml
they are at the top, and each database, user, peer and cluster is a table:
.PP
.RS
.nf
listen_port = 6432
default_pool_size = 50

[databases.app]
host = "10.0.0.1"
dbname = "app"
.fi
.RE
.PP
A key that is not set has its default. Where a
.I weir.toml
and the URL of
.B weir serve
have another default than a
.IR pgbouncer.ini ,
the page says so. A change of a key takes effect with a reload or with a restart, as its entry says.
.PP
.B weir check-config
says what Weir understands of a file, and
.B weir help
.I key
explains one key.
"#;

const SECTIONS: [(Scope, &str, &str); 5] = [
    (Scope::Global, "GLOBAL KEYS", "Section\n.BR [pgbouncer] ,\nor the top of\n.IR weir.toml ."),
    (
        Scope::Database,
        "DATABASES",
        "A line of the section\n.BR [databases] ,\nor a table\n.BI [databases. NAME ].\nThe entry\n.B *\n\
         applies to every name without its own entry.",
    ),
    (Scope::User, "USERS", "A line of the section\n.BR [users] ,\nor a table\n.BI [users. NAME ]."),
    (Scope::Peer, "PEERS", "A line of the section\n.BR [peers] ,\nor a table\n.BI [peers. ID ]."),
    (
        Scope::Cluster,
        "CLUSTERS",
        "A line of the section\n.BR [clusters] ,\nor a table\n.BI [clusters. NAME ].",
    ),
];

const END: &str = ".SH SEE ALSO\n.BR weir (1)\n";

/// Returns the paragraph of a key.
fn entry(key: &Key) -> String {
    let default = help::defaults(key, str::to_owned);
    let changes = if key.reloadable { "reload" } else { "restart" };
    let mut text = format!(
        ".TP\n.B {}\n{}\n.br\nValue: {}. Default: {}. Changes with a {changes}.\n",
        plain(key.name),
        paragraph(key.help),
        plain(&help::form(key)),
        plain(&default)
    );
    if let Some(why) = key.idle_because {
        let _ = writeln!(text, "Without effect, since {}.", plain(why));
    }
    text
}

/// Sets what stands between backquotes in bold type.
fn paragraph(markdown: &str) -> String {
    let pieces = markdown.split('`').enumerate();
    let set = pieces.map(|(place, piece)| match place % 2 {
        1 => format!("\\fB{}\\fR", plain(piece)),
        _ => plain(piece),
    });
    let text: String = set.collect();
    // A line that begins with one of these is a request.
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

/// Escapes what has a meaning inside a line.
fn plain(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_an_entry_where_it_may_stand() {
        let page = manual();
        for key in Key::all() {
            assert!(page.contains(&format!(".TP\n.B {}\n", plain(key.name))), "{}", key.name);
        }
        let databases = page.find(".SH DATABASES").unwrap();
        assert!(page[databases..].contains(".B connect_query\n"));
        assert!(!page[databases..].contains(".B listen_port\n"));
    }

    #[test]
    fn texts_do_not_become_requests() {
        assert_eq!(paragraph(".pgpass is read"), "\\&.pgpass is read");
        assert_eq!(paragraph("with `a-b` and \\n"), "with \\fBa\\-b\\fR and \\en");
        let known =
            [".TH ", ".SH ", ".TP", ".B ", ".BR ", ".BI ", ".I ", ".IR ", ".PP", ".RS", ".RE"];
        for line in manual().lines().filter(|line| line.starts_with(['.', '\''])) {
            let is_known = known.iter().any(|request| line.starts_with(request));
            assert!(is_known || [".nf", ".fi", ".br"].contains(&line), "{line}");
        }
    }
}

use super::*;

const FILE: &str = "\
# a comment
local   all             all                             peer map=os
local   sameuser        bob                             md5
hostssl \"all\"           all          all                cert
host    app,other       alice,\"al, ice\" 10.1.2.0/24     scram-sha-256 # why not
hostnossl all           @names       192.168.0.0 255.255.0.0  password
host    replication     all          ::1/128            trust
host    all             carol        0.0.0.0/0          ldap ldapserver=l ldapprefix=\"cn=\"
host    all             all          fe80::/10          reject
";

fn parse(text: &str) -> (Hba, Vec<String>) {
    let file: Arc<str> = "hba".into();
    let (maps, wrong) = IdentMaps::parse("os root postgres\nos \"the user\" all # yes\n", &file);
    assert!(wrong.is_empty(), "{wrong:?}");
    let read = |name: &str| match name {
        "names" => Some("dave\n# nobody\nerin, frank @more\n".to_owned()),
        "more" => Some("grace".to_owned()),
        "endless" => Some("@endless".to_owned()),
        _ => None,
    };
    let (hba, warnings) = Hba::parse(text, &file, &maps, &read);
    (hba, warnings.iter().map(ToString::to_string).collect())
}

fn line(address: &str, tls: bool, database: &str, user: &str) -> usize {
    let (hba, warnings) = parse(FILE);
    assert_eq!(warnings, Vec::<String>::new());
    let address = address.parse().ok();
    let visitor = Visitor { address, tls, replication: false, database, alias: None, user };
    hba.rule(&visitor).map_or(0, |rule| rule.line)
}

#[test]
fn the_first_rule_that_fits_decides() {
    assert_eq!(line("unix", false, "app", "alice"), 2);
    assert_eq!(line("10.1.2.3", false, "app", "alice"), 5);
    assert_eq!(line("10.1.2.3", false, "other", "al, ice"), 5);
    assert_eq!(line("10.1.3.3", false, "app", "alice"), 0);
    assert_eq!(line("10.1.2.3", false, "third", "alice"), 0);
    assert_eq!(line("10.1.2.3", false, "third", "carol"), 8);
    assert_eq!(line("::ffff:10.1.2.3", false, "third", "carol"), 0);
    assert_eq!(line("fe80::1", false, "app", "alice"), 9);
}

#[test]
fn a_quoted_keyword_is_a_name() {
    assert_eq!(line("8.8.8.8", true, "all", "x"), 4);
    assert_eq!(line("8.8.8.8", true, "app", "x"), 0);
    assert_eq!(line("8.8.8.8", false, "all", "x"), 0);
}

#[test]
fn a_rule_may_refuse_with_a_text() {
    let (hba, warnings) = parse("host all all all reject \"the method \"\"gss\"\" of line 3\"\n");
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(hba.rules[0].method, Method::Refuse("the method \"gss\" of line 3".into()));
    let (hba, warnings) = parse("host all all all reject \"a\" \"b\"\n");
    assert!(hba.rules.is_empty(), "{hba:?}");
    assert_eq!(warnings.len(), 1);
}

#[test]
fn keywords_for_databases_are_names_among_users() {
    let (hba, warnings) = parse(
        "local all replication,samerole reject\nlocal all @more,sameuser trust\nlocal all all md5\n",
    );
    assert_eq!(warnings, Vec::<String>::new());
    for (database, user, line) in [
        ("app", "replication", 1),
        ("app", "samerole", 1),
        ("app", "sameuser", 2),
        ("alice", "alice", 3),
    ] {
        let visitor =
            Visitor { address: None, tls: false, replication: false, database, alias: None, user };
        assert_eq!(hba.rule(&visitor).map(|rule| rule.line), Some(line), "{user}");
    }
}

#[test]
fn a_rule_may_name_a_database_by_either_of_its_names() {
    let (hba, _) = parse("local one all reject\nlocal all all trust\n");
    for (database, alias, line) in
        [("one", Some("other"), 1), ("other", Some("one"), 1), ("other", None, 2)]
    {
        let user = "alice";
        let visitor =
            Visitor { address: None, tls: false, replication: false, database, alias, user };
        assert_eq!(hba.rule(&visitor).map(|rule| rule.line), Some(line), "{database}");
    }
}

#[test]
fn names_may_be_in_files() {
    for user in ["dave", "erin", "frank", "grace"] {
        assert_eq!(line("192.168.3.4", false, "x", user), 6, "{user}");
        assert_eq!(line("192.168.3.4", true, "x", user), 0, "{user}");
    }
}

#[test]
fn replication_is_physical_replication_alone() {
    let (hba, _) = parse("host all all ::1/128 md5\nhost replication all ::1/128 trust\n");
    let mut visitor = Visitor {
        address: "::1".parse().ok(),
        tls: false,
        replication: true,
        database: "app",
        alias: None,
        user: "alice",
    };
    assert_eq!(hba.rule(&visitor).map(|rule| rule.line), Some(2));
    visitor.replication = false;
    assert_eq!(hba.rule(&visitor).map(|rule| rule.line), Some(1));
}

#[test]
fn a_map_tells_which_users_a_name_may_log_in_as() {
    let (hba, _) = parse(FILE);
    let map = hba.rules[0].map.as_ref().unwrap();
    assert_eq!(map.who_may_be("postgres").collect::<Vec<_>>(), ["root", "the user"]);
    assert_eq!(map.who_may_be("alice").collect::<Vec<_>>(), ["the user"]);
}

#[test]
fn an_invalid_line_is_ignored() {
    for text in [
        "remote all all md5",
        "local all md5",
        "local all, md5 trust",
        "local all all",
        "local all all ident",
        "local all all gss",
        "local all all ldap",
        "local all all ldap ldapserver=x",
        "local all all md5 please",
        "local all all peer map=nobody",
        "local all all peer map",
        "local samerole all md5",
        "local +group all md5",
        "local @missing all md5",
        "local @endless all md5",
        "local \"open all md5",
        "host all all md5",
        "host all all host.example md5",
        "host all all samehost md5",
        "host all all 10.0.0.0/33 md5",
        "host all all 10.0.0.0/+8 md5",
        "host all all 10.0.0.0 ffff:: md5",
        "host all all 10.0.0.0 md5",
        "host all all 10.0.0.1/8 reject",
        "host all all 10.1.0.0 255.0.0.0 reject",
        "host all all fe80::1/10 reject",
        "\"host\" all all all md5",
    ] {
        let (hba, warnings) = parse(&format!("{text}\nlocal all all trust\n"));
        assert_eq!((hba.rules.len(), warnings.len()), (1, 1), "{text}");
        assert!(warnings[0].starts_with("hba:1: could not parse hba config line"), "{warnings:?}");
    }
}

#[test]
fn an_invalid_line_of_a_map_is_ignored() {
    for text in ["a", "a b", "\"a\" b c", "a , c", "a b c d", "a \"b c"] {
        let (maps, warnings) = IdentMaps::parse(text, &"ident".into());
        assert_eq!((maps, warnings.len()), (IdentMaps::default(), 1), "{text}");
    }
}

#[test]
fn a_database_may_be_for_some_users_only() {
    let (hba, warnings) =
        parse("only \"a b\",c \"x\",\"all\"\nlocal all all trust\nonly none \"\"\n");
    assert_eq!((hba.rules.len(), warnings.len()), (1, 0));
    for (database, user, may) in [
        ("a b", "x", true),
        ("a b", "y", false),
        ("c", "all", true),
        ("c", "y", false),
        ("none", "x", false),
        ("other", "y", true),
    ] {
        assert_eq!(hba.may_connect(database, user), may, "{database} {user}");
    }
    // A line with a mistake has no effect, and a warning names it.
    for line in ["only all x", "only a all", "only a", "only a x y", "only sameuser x", "only @f x"]
    {
        let (hba, warnings) = parse(line);
        assert_eq!((hba.reserved.len(), warnings.len()), (0, 1), "{line}");
    }
}

#[test]
fn a_rule_may_name_the_service_of_pam() {
    let (hba, warnings) = parse("local all all pam\nlocal all all pam pamservice=\"a b\"\n");
    assert!(warnings.is_empty());
    assert_eq!(hba.rules[0].method, Method::Pam("pgbouncer".into()));
    assert_eq!(hba.rules[1].method, Method::Pam("a b".into()));
    for end in ["pamservice=x", "pamservice=", "pamservice=\"\"", "pamservice=\"a\" x"] {
        assert_eq!(parse(&format!("local all all pam {end}")).1.len(), 1, "{end}");
    }
}

#[test]
fn a_rule_may_count_the_common_name_only() {
    let (hba, warnings) =
        parse("hostssl all all all cert\nhostssl all all all cert clientname=CN\n");
    assert!(warnings.is_empty());
    assert_eq!(hba.rules[0].method, Method::Cert(CertName::Any));
    assert_eq!(hba.rules[1].method, Method::Cert(CertName::Common));
    assert_eq!(parse("hostssl all all all cert clientname=DN").1.len(), 1);
}

#[test]
fn names_may_be_cut_as_postgresql_does() {
    let (hba, warnings) = parse("name_len_max 4\nlocal all all trust\n");
    assert_eq!((hba.rules.len(), warnings.len()), (1, 0));
    for (user, known) in [("ab", "ab"), ("abcd", "abcd"), ("abcde", "abcd"), ("abc\u{e9}", "abc")] {
        assert_eq!(hba.known_user(user), known);
    }
    assert_eq!(parse("").0.known_user("abcde"), "abcde");
    assert_eq!(parse("name_len_max x\n").1.len(), 1);
}

#[test]
fn the_library_tells_the_numbers_of_roles() {
    let (hba, warnings) = parse("role \"it's\" 17\nrole app 18\nlocal all all trust\n");
    assert!(warnings.is_empty(), "{warnings:?}");
    let roles: Vec<_> = hba.roles.iter().map(|(name, oid)| (name.as_str(), *oid)).collect();
    assert_eq!(roles, [("app", 18), ("it's", 17)]);
    assert_eq!(hba.rules.len(), 1);
    assert_eq!(parse("role app\n").1.len(), 1);
    assert_eq!(parse("role app x\n").1.len(), 1);
}

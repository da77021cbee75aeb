use super::*;

const HOSTILE: &str = "</td><script>alert(\"x\")</script>&'\u{7}";

/// The page of a pooler in which every text is hostile.
fn page() -> String {
    let rows = |command: &str| {
        let table = show::find(command.strip_prefix("SHOW ")?.strip_suffix(" EXTENDED")?)?;
        let cell = |name: &str| match name {
            "epoch" | "last_epoch" | "waiting" | "errors" => "1000".to_owned(),
            "event" => "reload".to_owned(),
            _ => HOSTILE.to_owned(),
        };
        let heads = table.heads();
        Some(Answer {
            columns: heads.iter().map(|head| head.name.to_owned()).collect(),
            rows: vec![heads.iter().map(|head| Some(cell(head.name))).collect()],
        })
    };
    let gathered = Incident::gather(HOSTILE.to_owned(), |command| rows(command).ok_or(()));
    gathered.expect("every table is there").page()
}

#[test]
fn no_text_becomes_markup() {
    let page = page();
    assert!(!page.contains("<script") && !page.contains('\u{7}'), "{page}");
    assert!(
        page.contains("&lt;/td&gt;&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&amp;&#39;")
    );
}

#[test]
fn the_page_loads_nothing() {
    let page = page();
    for outside in ["http:", "https:", "src=", "href=", "url(", "@import", "<link"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn a_drawing_has_its_lines_and_a_mark_for_a_reload() {
    let page = page();
    assert_eq!(page.matches("<svg").count(), 1);
    assert_eq!(page.matches("<polyline").count(), 4);
    assert!(page.contains("stroke-dasharray") && page.contains("1000 errors"));
}

#[test]
fn the_first_error_ends_it() {
    let mut asked = Vec::new();
    let failed = Incident::gather(String::new(), |command| {
        asked.push(command.to_owned());
        if command == "SHOW RECORDER EXTENDED" { Err("lost") } else { Ok(Answer::default()) }
    });
    assert_eq!(failed.err(), Some("lost"));
    assert_eq!(asked, ["SHOW VERSION EXTENDED", "SHOW RECORDER EXTENDED"]);
}

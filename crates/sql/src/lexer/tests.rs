//! Texts and their tokens. The rules are those of the manual's chapter "Lexical Structure" and of
//! `scan.l`.

use super::*;

/// Returns each token as the letter of its kind and its text.
fn tokens(text: &str, standard_strings: bool) -> Vec<String> {
    let mut lexer = Lexer::new(standard_strings);
    let (mut at, mut tokens) = (0, Vec::new());
    let mut piece = text.as_bytes();
    loop {
        while let Some(token) = lexer.next(piece, &mut at) {
            let letter = match token.kind {
                Kind::Word => 'w',
                Kind::Quoted => 'q',
                Kind::Unicode => 'u',
                Kind::String => 's',
                Kind::Number => 'n',
                Kind::Symbol(_) => 'o',
            };
            tokens.push(format!("{letter}:{}", &text[token.start..token.end]));
        }
        if piece == b"\n" {
            break;
        }
        (piece, at) = (b"\n", 0);
    }
    if !lexer.is_certain() {
        tokens.push("?".to_owned());
    }
    tokens
}

#[track_caller]
fn check(standard_strings: bool, table: &[(&str, &[&str])]) {
    for (text, expected) in table {
        assert_eq!(tokens(text, standard_strings), *expected, "{text}");
    }
}

#[test]
fn identifiers() {
    check(
        true,
        &[
            ("a _b $c d$e é1", &["w:a", "w:_b", "w:c", "w:d$e", "w:é1"]),
            ("a\"b\"\"c\"d", &["w:a", "q:\"b\"\"c\"", "w:d"]),
            (
                "U&\"a\" u& \"b\" u &\"c\"",
                &["u:U&\"a\"", "w:u&", "q:\"b\"", "w:u", "o:&", "q:\"c\""],
            ),
            ("\"a", &["?"]),
        ],
    );
}

#[test]
fn numbers_and_parameters() {
    check(
        true,
        &[
            ("1 1.5 .5", &["n:1", "n:1", "o:.", "n:5", "o:.", "n:5"]),
            ("1e5 0x1F", &["n:1", "w:e5", "n:0", "w:x1F"]),
            ("$1 $12a", &["n:$1", "n:$12", "w:a"]),
            ("1$$a$$", &["n:1", "s:$$a$$"]),
        ],
    );
}

#[test]
fn strings() {
    check(
        true,
        &[
            ("'a''b'", &["s:'a'", "s:'b'"]),
            ("'a\\' b", &["s:'a\\'", "w:b"]),
            ("e'a\\'b' c", &["s:e'a\\'b'", "w:c"]),
            ("E'a\\\\' b", &["s:E'a\\\\'", "w:b"]),
            ("E'a''b' c", &["s:E'a''b'", "w:c"]),
            ("E'a'\n'b\\'c' d", &["s:E'a'", "s:'b\\'c'", "w:d"]),
            ("E'a' -- x\n \t'b\\'c' d", &["s:E'a'", "s:'b\\'c'", "w:d"]),
            ("E'a'\n-- x\r'b\\'c' d", &["s:E'a'", "s:'b\\'c'", "w:d"]),
            ("E'a' 'b\\' d", &["s:E'a'", "s:'b\\'", "w:d"]),
            ("E'a'\n/* */'b\\' d", &["s:E'a'", "s:'b\\'", "w:d"]),
            ("E'a'\n-'b\\' d", &["s:E'a'", "o:-", "s:'b\\'", "w:d"]),
            ("b'1' X'f' n'c\\' u&'d\\'", &["s:b'1'", "s:X'f'", "s:n'c\\'", "s:u&'d\\'"]),
            ("ab'c\\'", &["w:ab", "s:'c\\'"]),
            ("xe'c\\' d", &["w:xe", "s:'c\\'", "w:d"]),
            ("'a", &["?"]),
        ],
    );
    check(
        false,
        &[
            ("'a\\'b' c", &["s:'a\\'b'", "w:c"]),
            ("n'a\\'b' c", &["s:n'a\\'b'", "w:c"]),
            ("b'1' x'\\' c", &["s:b'1'", "s:x'\\'", "w:c"]),
            ("'a'\n'b\\'c' d", &["s:'a'", "s:'b\\'c'", "w:d"]),
        ],
    );
}

#[test]
fn dollar_quotes() {
    check(
        true,
        &[
            ("$$a$b'c$$ d", &["s:$$a$b'c$$", "w:d"]),
            ("$A$ $a$ $$ $A$ d", &["s:$A$ $a$ $$ $A$", "w:d"]),
            ("$a$ $aa$a$ d", &["s:$a$ $aa$a$", "w:d"]),
            ("$a$ $$a$ d", &["s:$a$ $$a$", "w:d"]),
            ("$é1$x$é1$", &["s:$é1$x$é1$"]),
            ("$$$$ $$$ $$", &["s:$$$$", "s:$$$ $$"]),
            ("a$$b$$ c", &["w:a$$b$$", "w:c"]),
            ("$a b", &["w:a", "w:b"]),
            ("$a$ b $a", &["?"]),
        ],
    );
}

#[test]
fn comments_and_operators() {
    check(
        true,
        &[
            ("a--b\nc", &["w:a", "w:c"]),
            ("a--b\rc", &["w:a", "w:c"]),
            ("a-b - -c", &["w:a", "o:-", "w:b", "o:-", "o:-", "w:c"]),
            ("a+--b", &["w:a", "o:+"]),
            ("a/b/ *", &["w:a", "o:/", "w:b", "o:/", "o:*"]),
            ("a/*b*/c", &["w:a", "w:c"]),
            ("/* /* */ a */ b", &["w:b"]),
            ("/*/ a */ b", &["w:b"]),
            ("/*/* */*/ b", &["w:b"]),
            ("/***/ b /*//**/*/ c", &["w:b", "w:c"]),
            ("*/*a*/b", &["o:*", "w:b"]),
            ("/* '*/ a /* $$ */", &["w:a"]),
            ("/* a", &["?"]),
        ],
    );
}

//! OpenSSL's cipher lists (`man 1 ciphers`), for the cipher suites of TLS 1.2 that Weir has: ECDHE with
//! RSA or ECDSA, and AES-GCM or ChaCha20-Poly1305. The order of a list has no effect.

/// Returns whether a list allows the cipher suite that OpenSSL calls `suite`.
///
/// A word adds the suites it names; `-` in front of it removes them; `!` removes them for good; `+`
/// would move them to the end. `A+B` names the suites that both words name. Words that name none of
/// Weir's suites have no effect.
pub(crate) fn allows(list: &str, suite: &str) -> bool {
    let mut is_allowed = false;
    for item in list.split([':', ',', ';', ' ', '@']).filter(|item| !item.is_empty()) {
        let words = item.trim_start_matches(['!', '-', '+']);
        if !words.split('+').all(|word| names(word, suite)) {
            continue;
        }
        match item.as_bytes()[0] {
            b'!' => return false,
            b'-' => is_allowed = false,
            b'+' => {}
            _ => is_allowed = true,
        }
    }
    is_allowed
}

/// Returns whether a word is the name of the suite or of a group it belongs to.
fn names(word: &str, suite: &str) -> bool {
    let has = |part| suite.split('-').any(|own| own == part);
    match word {
        "ALL" | "DEFAULT" | "HIGH" | "TLSv1.2" => true,
        "ECDHE" | "EECDH" | "kECDHE" | "kEECDH" | "ECDH" => has("ECDHE"),
        "aRSA" => has("RSA"),
        "aECDSA" | "ECDSA" => has("ECDSA"),
        "AES128" | "AES256" | "CHACHA20" => has(word),
        "AES" | "FIPS" => has("AES128") || has("AES256"),
        "AESGCM" => has("GCM"),
        name => name.eq_ignore_ascii_case(suite),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const SUITES: [&str; 6] = [
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "ECDHE-RSA-AES256-GCM-SHA384",
        "ECDHE-RSA-AES128-GCM-SHA256",
        "ECDHE-RSA-CHACHA20-POLY1305",
    ];

    const LISTS: [&str; 28] = [
        "HIGH:MEDIUM:+3DES:!aNULL",
        "HIGH:!aNULL:!MD5",
        "HIGH:!aNULL:!eNULL:!EXPORT:!DES:!RC4:!MD5:!PSK:!SRP:!CAMELLIA",
        "ALL:!LOW:!EXP:!MD5:@STRENGTH",
        "DEFAULT:!SEED:!IDEA",
        "DEFAULT@SECLEVEL=1",
        "DEFAULT:@SECLEVEL=2",
        "EECDH+AESGCM:EDH+AESGCM:AES256+EECDH:AES256+EDH",
        "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-SHA384",
        "ECDHE+aRSA, CHACHA20+aECDSA",
        "ECDH+AESGCM ECDH+CHACHA20",
        "kECDHE:!aECDSA",
        "kEECDH:-CHACHA20",
        "HIGH:-AES256:AES256+aECDSA",
        "HIGH:!AES256:AES256+aECDSA",
        "!AES128:ALL",
        "ECDSA;AES128+aRSA",
        "AES:-AES256",
        "FIPS:!aRSA",
        "TLSv1.2:!AESGCM",
        "TLSv1.2+HIGH",
        "SHA256",
        "SHA384",
        "AES256-SHA:AES128-SHA",
        "kRSA",
        "RC4-MD5:3DES",
        "COMPLEMENTOFDEFAULT:CHACHA20",
        "nothing at all",
    ];

    #[test]
    fn of_each_list_openssl_and_weir_say_the_same() {
        for list in LISTS {
            let said = Command::new("openssl").args(["ciphers", "-s", "-tls1_2", list]).output();
            let said = String::from_utf8(said.expect("openssl").stdout).expect("names");
            let expected = |suite: &&str| said.trim().split(':').any(|name| name == *suite);
            let expected: Vec<&str> = SUITES.into_iter().filter(expected).collect();
            let allowed: Vec<&str> =
                SUITES.into_iter().filter(|suite| allows(list, suite)).collect();
            assert_eq!(allowed, expected, "{list}");
        }
    }
}

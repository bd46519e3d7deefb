//! `[admin]` and the filter of the log.

use super::{EXAMPLE, Folder, check_fault, load_text};
use crate::config::render_effective;

const TOKEN: &str = "0123456789abcdef";

#[test]
fn nothing_listens_unless_it_is_asked_for() {
    assert!(load_text(EXAMPLE, &[]).unwrap().config.admin.is_none());
    let token = format!("admin.token={TOKEN}");
    assert!(load_text(EXAMPLE, &[&token]).unwrap().config.admin.is_none());
}

#[test]
fn whoever_calls_has_to_bring_a_token_along() {
    let listen = "admin.listen=127.0.0.1:8082";
    let cases: [(&[&str], &str, &[&str]); 8] = [
        (&[listen], "admin.token", &["is missing", "openssl rand -hex 32"]),
        (&[listen, "admin.token="], "admin.token", &["too short", "16 characters"]),
        (&[listen, "admin.token=fifteen-letters"], "admin.token", &["too short"]),
        (&["admin.token=with a space in it"], "admin.token", &["cannot have"]),
        (&[listen, "admin.token_file=/no/such"], "admin.token_file", &["cannot read /no/such"]),
        (&["admin.listen=8082"], "admin.listen", &["\"127.0.0.1:8082\"", "or \"off\""]),
        (
            &["admin.token=0123456789abcdef", "admin.listen=127.0.0.1:8080"],
            "admin.listen",
            &["is http.listen too"],
        ),
        (&["admin.tokn=x"], "admin.tokn", &["did you mean `token`?"]),
    ];
    for (overrides, key, essentials) in cases {
        check_fault(load_text(EXAMPLE, overrides), key, essentials);
    }
    let both = format!("{EXAMPLE}[admin]\ntoken = \"{TOKEN}\"\ntoken_file = \"/dev/null\"\n");
    check_fault(load_text(&both, &[]), "admin.token_file", &["give one of them"]);
}

#[test]
fn the_token_is_shown_nowhere_also_when_it_is_wrong() {
    let folder = Folder::new();
    for token in ["hush-hush-hush-hush", "hush", "hush hush hush hush"] {
        let file = folder.write("token", &format!("{token}\n"));
        let listen = "[admin]\nlisten = \"127.0.0.1:8082\"\n";
        for key in [format!("token = \"{token}\""), format!("token_file = \"{}\"", file.display())]
        {
            match load_text(&format!("{EXAMPLE}{listen}{key}\n"), &[]) {
                Ok(loaded) => {
                    let admin = loaded.config.admin.clone().unwrap();
                    assert_eq!(admin.token.expose(), token);
                    let json = loaded.effective.to_json().to_string();
                    for text in [render_effective(&loaded), json, format!("{loaded:?}")] {
                        assert!(!text.contains("hush"), "{text}");
                    }
                }
                Err(faults) => {
                    assert!(token.len() < 16 || token.contains(' '), "{faults:?}");
                    assert!(!format!("{faults:?}").contains("hush"), "{faults:?}");
                }
            }
        }
    }
}

#[test]
fn a_certificate_and_its_key_come_together() {
    let folder = Folder::new();
    let file = folder.write("pem", "");
    let token = format!("admin.token={TOKEN}");
    let certificate = format!("admin.tls_certificate_file={}", file.display());
    let key = format!("admin.tls_key_file={}", file.display());
    let load = |more: &[&str]| load_text(EXAMPLE, &[&[token.as_str()], more].concat());
    check_fault(load(&[&certificate]), "admin.tls_key_file", &["is missing"]);
    check_fault(load(&[&key]), "admin.tls_certificate_file", &["is missing"]);
    let nowhere = "admin.tls_key_file=/no/such";
    check_fault(load(&[&certificate, nowhere]), "admin.tls_key_file", &["cannot read /no/such"]);
    let open = "admin.listen=0.0.0.0:8082";
    let loaded = load(&[open, &certificate, &key]).unwrap();
    assert_eq!(loaded.config.admin.unwrap().tls.unwrap().key_file, file);
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let loaded = load(&[open]).unwrap();
    assert!(loaded.warnings[0].contains("admin.tls_certificate_file"), "{:?}", loaded.warnings);
    let loaded = load(&["admin.listen=127.0.0.1:8082"]).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
}

#[test]
fn a_level_with_a_wrong_letter_is_no_filter() {
    for (filter, said) in
        [("inf", "did you mean \"info\"?"), ("info,kafka", "no level"), (" ", "is empty")]
    {
        check_fault(load_text(EXAMPLE, &[&format!("log.filter={filter}")]), "log.filter", &[said]);
    }
    for filter in ["WARN", "off", "2", "warn,tidegate=debug", "hyper=off, info", "tidegate"] {
        let loaded = load_text(EXAMPLE, &[&format!("log.filter={filter}")]).unwrap();
        assert_eq!(loaded.config.log.filter, filter);
    }
}

#[test]
fn repeats_are_limited_or_not() {
    let repeats = |overrides: &[&str]| load_text(EXAMPLE, overrides).unwrap().config.log.repeats;
    let limit = repeats(&["log.repeats=3", "log.repeat_interval=1m"]).unwrap();
    assert_eq!((limit.lines, limit.interval.as_secs()), (3, 60));
    assert_eq!(repeats(&["log.repeats=off"]), None);
    check_fault(load_text(EXAMPLE, &["log.repeats=0"]), "log.repeats", &["nor \"off\""]);
    let key = "log.repeat_interval";
    check_fault(load_text(EXAMPLE, &["log.repeat_interval=0s"]), key, &["longer than zero"]);
}

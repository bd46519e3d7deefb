//! Rust sources without what the compiler does not read.

/// The code alone: comments are left out, texts are emptied.
pub(crate) fn code(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = comment(rest)
            .or_else(|| raw_text(rest, code.chars().next_back()))
            .or_else(|| quoted(rest))
            .or_else(|| character(rest));
        if let Some(length) = skipped {
            code.push_str(if first == '/' { " " } else { "\"\"" });
            rest = &rest[length..];
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    code
}

/// The names and keywords in it.
pub(crate) fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .filter(|word| !word.is_empty())
}

fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    // Comments inside of comments do not occur here.
    text.starts_with("/*").then(|| text.find("*/").map_or(text.len(), |end| end + 2))
}

fn raw_text(text: &str, before: Option<char>) -> Option<usize> {
    let begins = !before.is_some_and(|before| before.is_alphanumeric() || before == '_')
        || before == Some('b');
    let hashes = text.strip_prefix('r').filter(|_| begins)?;
    let count = hashes.len() - hashes.trim_start_matches('#').len();
    let body = hashes[count..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(count));
    let length = body.find(&end).map_or(body.len(), |at| at + end.len());
    Some(1 + count + 1 + length)
}

fn quoted(text: &str) -> Option<usize> {
    let body = text.strip_prefix('"')?;
    let mut escaped = false;
    for (at, letter) in body.char_indices() {
        match letter {
            '"' if !escaped => return Some(at + 2),
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    Some(text.len())
}

/// A character, not a lifetime.
fn character(text: &str) -> Option<usize> {
    let body = text.strip_prefix('\'')?;
    if body.starts_with('\\') {
        let mut escape = body.char_indices().skip(2);
        return escape.find(|(_, letter)| *letter == '\'').map(|(at, _)| at + 2);
    }
    let first = body.chars().next()?;
    body[first.len_utf8()..].starts_with('\'').then(|| first.len_utf8() + 2)
}

#[test]
fn comments_and_texts_are_left_out() {
    let text =
        "let a = \"x // \\\" y\"; // z\nlet b = r#\"\"q\"\"#; 'a: loop { '\"'; b'\\'' /* no */ }";
    assert_eq!(code(text), "let a = \"\";  \nlet b = \"\"; 'a: loop { \"\"; b\"\"   }");
}

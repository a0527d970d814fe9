//! Literals of Python.

use crate::python_literal::PythonLiteral::{self, Flag, List, Map, Number, Text};

#[test]
fn literals_are_read() {
    let check = |text: &str, wanted: PythonLiteral| assert_eq!(PythonLiteral::parse(text), Ok(wanted));
    check(" 12 ", Number(12));
    check("12L", Number(12));
    check("True", Flag(true));
    check("(3)", Number(3));
    check("(3,)", List(vec![Number(3)]));
    check("()", List(Vec::new()));
    check("[3]", List(vec![Number(3)]));
    check("(3, 'a',)", List(vec![Number(3), Text("a".into())]));
    check(r#"'\x41\u00e9\U0001f600\n\'"'"#, Text("Aé😀\n'\"".into()));
    check("{'a': {\"b\": False,},}", Map(vec![("a".into(), Map(vec![("b".into(), Flag(false))]))]));
}

#[test]
fn other_texts_are_refused() {
    let texts =
        ["", "1 2", "(1", "[1,,2]", "{1: 2}", "{'a' 1}", "'a", r"'\q'", r"'\x4'", r"'\ud800'", "-1", "None", "1e3"];
    for text in texts.into_iter().chain(["18446744073709551616", "__import__('os')", "(,)", "{'a': 1 'b'}"]) {
        let reason = PythonLiteral::parse(text).unwrap_err();
        assert!(reason.starts_with("expected "), "{text}: {reason}");
    }
    assert!(PythonLiteral::parse(&"[".repeat(100_000)).unwrap_err().contains("levels"));
}

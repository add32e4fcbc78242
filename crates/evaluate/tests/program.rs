//! The program `hearth-evaluate` by itself: what needs no device.

use std::process::{Command, Output};

fn evaluate(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hearth-evaluate")).args(words).output().expect("the binary runs")
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn suites_are_listed_for_people_and_programs() {
    let (code, text, _) = said(&evaluate(&["list"]));
    assert!(code == Some(0) && text.contains("readhit\n") && text.contains("published"), "{text}");
    // An option of every command may stand before and behind.
    for words in [["--json", "list"], ["list", "--json"]] {
        let (_, text, _) = said(&evaluate(&words));
        let suites: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert!(suites.as_array().is_some_and(|suites| suites.iter().any(|suite| suite["name"] == "tpcc")), "{text}");
    }
}

#[test]
fn it_explains_itself_under_the_name_it_is_called_by() {
    let (code, text, _) = said(&evaluate(&["load", "--help"]));
    assert!(code == Some(0) && text.contains("Usage: hearth evaluate load"), "{text}");
}

#[test]
fn mistakes_have_the_status_of_mistakes() {
    for (words, code, sentence) in [
        (&["run", "--frobnicate"][..], 2, "--frobnicate"),
        (&["run", "--pairs", "0"], 2, "hearth: cannot run the evaluation: --pairs 0 measures nothing; give 1 or more"),
        (&["load", "/no/such/device", "--places", "everywhere"], 1, "/no/such/device"),
        (&["report", "/no/such/run"], 1, "cannot write the report"),
    ] {
        let (status, _, error) = said(&evaluate(words));
        assert!(status == Some(code) && error.contains(sentence), "{words:?}: {status:?} {error}");
    }
}

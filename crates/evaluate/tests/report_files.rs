//! The files of a report: HTML that asks for nothing outside itself and shows its charts in a browser, PDF that readers of PDF read.

mod synthetic;

use evaluate::report::{self, FORMATS, Prices, prices};
use evaluate::store::Store;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

struct Written {
    _place: tempfile::TempDir,
    out: PathBuf,
    files: Vec<PathBuf>,
}

/// A report of everything, with text that is not harmless.
fn written() -> Written {
    let place = tempfile::tempdir().expect("a directory");
    let (mut evaluation, mut legs) = synthetic::whole(1);
    evaluation.machine.cpu = "<b>A & \"B\"</b> 漢".into();
    legs[0].notes.push("</section><script>alert(1)</script> see ${x} & y".into());
    let out = place.path().join("out");
    let store = Store::create(&out, &evaluation).expect("creates");
    legs.iter().for_each(|leg| store.put(leg).expect("puts"));
    let prices = Prices::parse(prices::EXAMPLE).expect("prices");
    let files = report::write(&out, &FORMATS, Some(&prices)).expect("writes");
    Written { _place: place, out, files }
}

fn html(written: &Written) -> String {
    std::fs::read_to_string(written.out.join("report.html")).expect("there is one")
}

/// Every tag of a page: its name, what else stands in it, and whether it opens or closes. Panics where the page is not well-formed.
fn check_well_formed(page: &str) {
    let body = page.strip_prefix("<!DOCTYPE html>\n").expect("says what it is");
    // What stands in a style is no markup.
    let (before, rest) = body.split_once("<style>").expect("a style");
    let (_, after) = rest.split_once("</style>").expect("its end");
    let mut open: Vec<&str> = Vec::new();
    for part in [before, after].concat().split('<').skip(1).map(str::to_owned).collect::<Vec<_>>().iter().map(|part| &**part) {
        let (tag, text) = part.split_once('>').expect("a tag ends");
        assert!(!text.contains('>'), "an unescaped > in {text}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = tag.split([' ', '/']).find(|name| !name.is_empty()).expect("a tag has a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> closes another tag");
        } else if !tag.ends_with('/') {
            // Leaked for the length of a test: tags are compared with what was opened before.
            open.push(Box::leak(name.to_owned().into_boxed_str()));
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

#[test]
fn the_page_needs_nothing_outside_itself_and_is_well_formed() {
    let written = written();
    let page = html(&written);
    check_well_formed(&page);
    for outside in ["http:", "https:", "//", "src=", "@import", "url(", "<link", "<script", "<iframe"] {
        assert!(!page.contains(outside), "{outside} in the page");
    }
    let ids: Vec<&str> = page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().expect("an end")).collect();
    let unique: BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(ids.len(), unique.len(), "an id stands twice: {ids:?}");
    for target in page.split("href=\"#").skip(1).map(|rest| rest.split('"').next().expect("an end")) {
        assert!(unique.contains(target), "#{target} leads nowhere");
    }
    for reference in page.split("aria-labelledby=\"").skip(1).map(|rest| rest.split('"').next().expect("an end")) {
        assert!(unique.contains(reference), "{reference} is no title");
    }
    assert!(page.contains("&lt;/section&gt;&lt;script&gt;alert(1)") && !page.contains("alert(1)</script>"));
}

#[test]
fn every_chart_is_a_file_too() {
    let written = written();
    let pictures: Vec<&PathBuf> = written.files.iter().filter(|path| path.extension().is_some_and(|ending| ending == "svg")).collect();
    assert_eq!(pictures.len(), html(&written).matches("<svg ").count());
    for path in pictures {
        let svg = std::fs::read_to_string(path).expect("reads");
        assert!(svg.starts_with("<svg xmlns=\"") && svg.contains("<style>") && svg.ends_with("</svg>\n"), "{}", path.display());
    }
}

fn there_is(program: &str, option: &str) -> bool {
    let is = Command::new(program).arg(option).output().is_ok_and(|output| output.status.success());
    if !is {
        eprintln!("skipped: {program} is not here");
    }
    is
}

/// The page after a browser has laid it out, with the measures that a script in it took.
fn laid_out(page: &str, place: &Path) -> String {
    let file = place.join("page.html");
    let script = "<script>onload = () => { const bad = [], boxes = [...document.querySelectorAll('svg')].map(svg => svg.getBoundingClientRect()); \
                  for (const [nth, svg] of [...document.querySelectorAll('svg')].entries()) { \
                    const lines = [...svg.querySelectorAll('path, rect')].filter(mark => { const box = mark.getBBox(); return box.width > 0 || box.height > 0; }); \
                    if (boxes[nth].width < 200 || boxes[nth].height < 50 || lines.length < 3) bad.push(svg.textContent); } \
                  const wide = document.documentElement.scrollWidth > innerWidth; \
                  document.body.dataset.measured = `${boxes.length} charts, ${bad.length} empty, ${wide ? 'too wide' : 'fits'}`; };</script>";
    std::fs::write(&file, page.replace("</body>", &format!("{script}</body>"))).expect("writes");
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000", "--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", place.join("browser").display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("chromium runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_browser_shows_the_charts() {
    if !there_is("chromium", "--version") {
        return;
    }
    let written = written();
    let page = html(&written);
    let dom = laid_out(&page, &written.out);
    let measured = dom.split("data-measured=\"").nth(1).and_then(|rest| rest.split('"').next());
    assert_eq!(measured, Some(format!("{} charts, 0 empty, fits", page.matches("<svg ").count()).as_str()));
}

#[test]
fn readers_of_pdf_read_it() {
    let written = written();
    let path = written.out.join("report.pdf");
    let bytes = std::fs::read(&path).expect("there is one");
    assert!(bytes.starts_with(b"%PDF-1.") && bytes.trim_ascii_end().ends_with(b"%%EOF"));
    if !there_is("pdftotext", "-v") {
        return;
    }
    let output = Command::new("pdftotext").args(["-layout"]).arg(&path).arg("-").output().expect("runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    for words in [
        "What was published",
        "61.1 ×",
        "not reached",
        "7k2-raid5x3-short",
        "Not measured",
        "How it was calculated",
        "Prices of a transaction a minute",
        "<b>A & \"B\"</b> ?",
    ] {
        assert!(text.contains(words), "{words} is not in the PDF");
    }
    // The summary is one page: the first sheet has the last headline.
    let first = text.split('\u{c}').next().unwrap_or("");
    assert!(first.contains("half writes"), "{first}");
}

//! The web console as files in the binary, and what a server must say of each. Made by `make console` (in `console/`, TypeScript); a
//! build without it has one page that says so.

/// A file as the generated table has it.
struct File {
    name: &'static str,
    bytes: &'static [u8],
    brotli: Option<&'static [u8]>,
    etag: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// What the console needs to be allowed, and nothing else: the value of the header `content-security-policy` of every page and file.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Whether the console itself is in this build, not only the page that says how to make it.
pub const fn is_built() -> bool {
    BUILT
}

/// A file of the console, ready to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asset {
    /// As they are.
    pub bytes: &'static [u8],
    /// The header `content-type`.
    pub content_type: &'static str,
    /// The same compressed, for who accepts `br`.
    pub brotli: Option<&'static [u8]>,
    /// The header `etag`, quotes included.
    pub etag: &'static str,
    /// Whether the name changes with the content: it may be kept for ever. Else it is to be asked for each time.
    pub immutable: bool,
}

/// The file at a path of the address (`/`, `/index.html`, `/app-….js`), if there is one. The part behind `#` never reaches a server, so `/`
/// is every page of the console.
pub fn asset(path: &str) -> Option<Asset> {
    let name = path.strip_prefix('/')?;
    let name = if name.is_empty() { "index.html" } else { name };
    let file = FILES.iter().find(|file| file.name == name)?;
    Some(Asset {
        bytes: file.bytes,
        content_type: content_type(name),
        brotli: file.brotli,
        etag: file.etag,
        immutable: name.starts_with("app-"),
    })
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(asset: &Asset) -> &'static str {
        std::str::from_utf8(asset.bytes).expect("pages are text")
    }

    /// Names in `src="…"` and `href="…"`.
    fn named(page: &str) -> Vec<&str> {
        let after = |mark| page.split(mark).skip(1).filter_map(|rest| rest.split('"').next());
        after("src=\"").chain(after("href=\"")).collect()
    }

    #[test]
    fn the_page_is_there_in_every_build() {
        let page = asset("/").expect("there is a page");
        assert_eq!(page.content_type, "text/html; charset=utf-8");
        assert_eq!(asset("/index.html"), Some(page));
        assert!(!page.immutable);
        assert_eq!(is_built(), !text(&page).contains("make console"));
        assert!(page.etag.starts_with('"') && page.etag.len() == 18);
    }

    #[test]
    fn what_the_page_names_is_there() {
        let page = asset("/").expect("there is a page");
        let names = named(text(&page));
        assert_eq!(names.len(), if is_built() { 3 } else { 0 }, "icon, style and script: {names:?}");
        for name in names {
            let file = asset(&format!("/{name}")).unwrap_or_else(|| panic!("{name} is missing"));
            assert!(!file.content_type.ends_with("octet-stream"), "{name}");
            assert_eq!(file.immutable, name.starts_with("app-"));
            assert!(file.brotli.is_some_and(|small| small.len() < file.bytes.len()), "{name} has no compressed form");
        }
    }

    #[test]
    fn nothing_in_the_page_breaks_the_policy() {
        let page = asset("/").expect("there is a page");
        let page = text(&page);
        for inline in ["<style", " style=", " onclick", " onload", "javascript:"] {
            assert!(!page.contains(inline), "{inline}");
        }
        assert!(!page.contains("<script>") && !page.contains("http"), "scripts and addresses come from here");
    }

    #[test]
    fn other_paths_have_no_file() {
        for path in ["", "index.html", "//index.html", "/../Cargo.toml", "/app-", "/index.html.br", "/.gitkeep", "/INDEX.HTML", "/\0"] {
            assert_eq!(asset(path), None, "{path:?}");
        }
    }
}

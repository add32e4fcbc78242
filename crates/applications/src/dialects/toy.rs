//! A database for tests: `*.toy` files of 4 KiB pages, whose first page names the tables, and a log beside them. This
//! file and its line in the table are all that hearth knows of it.

use super::{Claim, DataFiles, Dialect, Engine, Facts, FilePath, Home, Work};
use crate::ObjectKind;
use crate::bytes::le32;
use crate::discovery::{Draft, Evidence, Findings, Key, Server, Source};
use crate::filesystems::DataFile;
use crate::naming::{Catalogue, Name, NativeKey, Wanted};
use crate::page::{Certainty, Page, PageKind, PageOwner};
use crate::recognise::Head;
use crate::streams::Subject;
use types::StreamClass;

const PAGE_BYTES: u32 = 4096;
const LOG: &str = "log.toy";

/// See [`Engine::Toy`].
pub(super) struct Toy;

impl Dialect for Toy {
    fn facts(&self) -> &'static Facts {
        const {
            &Facts {
                programs: &[(Subject::Process, "toydump", StreamClass::Backup)],
                directories: &["toy"],
                files: Some(&Toy),
                ..Facts::of_pages("Toy", "toy")
            }
        }
    }

    /// Magic, table (0: the names of tables), number, sum of these.
    fn page(&self, _: &[u8], head: &Head) -> Option<Page> {
        let (table, number) = (le32(head, 4), le32(head, 8));
        let fits = head[..4] == *b"TOYP" && le32(head, 12) == table.wrapping_add(number);
        let kind = if table == 0 { PageKind::Dictionary } else { PageKind::Table };
        fits.then_some(Page {
            number: Some(number),
            owner: PageOwner::Named(table.into()),
            prev: number.checked_sub(1),
            is_leaf: true,
            ..Page::new(Engine::Toy, Certainty::Likely, kind, PAGE_BYTES)
        })
    }

    fn rare_page(&self, _: &[u8], head: &Head) -> Option<Page> {
        (head[..4] == *b"TOYL").then(|| Page::new(Engine::Toy, Certainty::Likely, PageKind::Log, PAGE_BYTES))
    }

    fn verify(&self, page: &mut Page, bytes: &[u8]) {
        if bytes.get(PAGE_BYTES as usize - 4..PAGE_BYTES as usize) == Some(b"end.") {
            page.certainty = Certainty::Verified;
        }
    }
}

impl DataFiles for Toy {
    fn claims(&self, path: &FilePath<'_>) -> Option<Claim> {
        path.name.ends_with(".toy").then_some(Claim::Each)
    }

    fn homes<'a>(&'a self, _: &'a mut Source<'_>, files: Vec<DataFile>) -> Work<'a, Vec<Home>> {
        Box::pin(std::future::ready(Home::by_directory(files)))
    }

    fn servers(&self, homes: Vec<Home>) -> Vec<Server> {
        homes.into_iter().map(|home| home.server(Engine::Toy)).collect()
    }

    fn discover<'a>(&'a self, source: &'a mut Source<'_>, server: Server, findings: Findings<'a>) -> Work<'a, ()> {
        Box::pin(async move {
            let Findings { application, drafts, .. } = findings;
            let (logs, data): (Vec<_>, Vec<_>) = server.files.into_iter().partition(|file| file.path.ends_with(LOG));
            for file in data {
                let mut tables = Tables::default();
                let evidence = Evidence { file: true, pages: source.read_names(&mut tables, &[&file]).await, catalogue: false };
                let domain = Some(drafts.domain());
                let (path, bytes) = (file.path.clone(), file.bytes);
                let whole = Draft::new(application, ObjectKind::Unknown, path.clone(), Key::File(path.clone()), evidence);
                let within = drafts.put(Draft { files: vec![(0, file)], bytes, domain, ..whole });
                for name in tables.names() {
                    let key = Key::Unit { database: path.clone(), unit: name.key.1 };
                    let table = Draft::new(application, name.kind, name.table.unwrap_or_default(), key, evidence);
                    drafts.put(Draft { within, domain, ..table });
                }
                drafts.applications[application].evidence = evidence;
            }
            drafts.put_kind(application, ObjectKind::Redo, logs);
        })
    }

    fn catalogue(&self) -> Box<dyn Catalogue> {
        Box::new(Tables::default())
    }
}

/// Tables by their names: their numbers are their places, from 1 on.
#[derive(Default, Debug)]
struct Tables(Vec<String>);

impl Catalogue for Tables {
    fn page(&mut self, page: &Page, bytes: &[u8], _: u64) -> bool {
        let names = bytes.get(16..).unwrap_or_default().split(|byte| *byte == 0).next().unwrap_or_default();
        if page.kind == PageKind::Dictionary {
            self.0 = String::from_utf8_lossy(names).split(' ').map(str::to_owned).collect();
        }
        page.kind == PageKind::Dictionary
    }

    fn wants(&self, file: &DataFile) -> Option<Wanted> {
        Some(Wanted::first(0, PAGE_BYTES.into(), file))
    }

    fn names(&self) -> Vec<Name> {
        let name = |(name, number): (&String, u64)| Name {
            key: NativeKey(0, number),
            database: None,
            schema: None,
            table: Some(name.clone()),
            index: None,
            kind: ObjectKind::Table,
            root: None,
        };
        self.0.iter().zip(1..).map(name).collect()
    }

    fn conflicts(&self) -> u64 {
        0
    }
}

#[path = "toy_tests.rs"]
mod tests;

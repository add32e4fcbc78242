//! The directory of an evaluation: `evaluation.json` with the plan, and `legs/CASE/ARM-ROUND.json`, one file for each leg that has been run.
//! A file is there as a whole or not at all: written beside its place, made durable, then renamed.

use crate::result::{Evaluation, FORMAT, Leg, NotMeasured};
use crate::trouble::Trouble;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

const PLAN: &str = "evaluation.json";
const LEGS: &str = "legs";

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Store {
    place: PathBuf,
}

/// All that a directory holds.
#[derive(Clone, PartialEq, Debug)]
pub struct Kept {
    /// The plan.
    pub evaluation: Evaluation,
    /// What has been run, in the plan's order.
    pub legs: Vec<Leg>,
    /// Files that are no legs of this plan, and why: for the report.
    pub damaged: Vec<NotMeasured>,
}

impl Store {
    /// Begins an evaluation in a directory that is empty or not there yet.
    ///
    /// # Errors
    /// If something else is in it, if a name in the plan cannot be a file's, or if it cannot be written.
    pub fn create(place: &Path, evaluation: &Evaluation) -> Result<Store, Trouble> {
        for case in &evaluation.cases {
            for name in std::iter::once(&case.id).chain(case.arms.iter().map(|arm| &arm.id)) {
                if !is_name(name) {
                    return Err(Trouble::Usage(format!("\"{name}\" cannot be a file's name; use letters, digits, points and dashes")));
                }
            }
        }
        fs::create_dir_all(place).map_err(|error| Trouble::io("make the directory", place, &error))?;
        let mut entries = fs::read_dir(place).map_err(|error| Trouble::io("read", place, &error))?;
        if place.join(PLAN).exists() {
            let remedy = "the same command goes on with it; another --out begins a new one";
            return Err(Trouble::failed(format!("{} holds an evaluation already", place.display()), remedy));
        }
        if let Some(Ok(entry)) = entries.next() {
            let problem = format!("{} is not empty ({} is in it)", place.display(), entry.file_name().display());
            return Err(Trouble::failed(problem, "name a directory of its own with --out"));
        }
        let store = Store { place: place.to_path_buf() };
        store.write(&place.join(PLAN), &text_of(evaluation)?)?;
        Ok(store)
    }

    /// The evaluation in a directory.
    ///
    /// # Errors
    /// If there is none that this version of hearth reads.
    pub fn open(place: &Path) -> Result<Store, Trouble> {
        let store = Store { place: place.to_path_buf() };
        store.evaluation()?;
        Ok(store)
    }

    /// Whether a directory holds one.
    pub fn is_one(place: &Path) -> bool {
        place.join(PLAN).is_file()
    }

    /// Writes the plan anew.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn plan(&self, evaluation: &Evaluation) -> Result<(), Trouble> {
        self.write(&self.place.join(PLAN), &text_of(evaluation)?)
    }

    /// Where it is.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// The plan.
    ///
    /// # Errors
    /// If it is not there, is not one, or has another version's form.
    pub fn evaluation(&self) -> Result<Evaluation, Trouble> {
        let path = self.place.join(PLAN);
        let text = fs::read_to_string(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Trouble::failed(
                format!("{} holds no evaluation", self.place.display()),
                "name the directory given to `hearth evaluate run --out`",
            ),
            _ => Trouble::io("read", &path, &error),
        })?;
        let foreign =
            |why: String| Trouble::failed(format!("{} is not an evaluation: {why}", path.display()), "begin again in another directory");
        let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| foreign(error.to_string()))?;
        match value.get("format").and_then(serde_json::Value::as_u64) {
            None => Err(foreign("it does not say its format".into())),
            Some(format) if format != u64::from(FORMAT) => {
                let problem = format!("{} has format {format}, and this version of hearth reads format {FORMAT}", path.display());
                Err(Trouble::failed(problem, "use the version of hearth that wrote it"))
            }
            Some(_) => serde_json::from_value(value).map_err(|error| foreign(error.to_string())),
        }
    }

    /// Keeps a leg that has been run; an older one of the same name is replaced.
    ///
    /// # Errors
    /// If it cannot be written, or a figure of it is not a number.
    pub fn put(&self, leg: &Leg) -> Result<(), Trouble> {
        let path = self.path_of(&leg.case, &leg.arm, leg.round);
        let parent = path.parent().expect("legs/CASE");
        fs::create_dir_all(parent).map_err(|error| Trouble::io("make the directory", parent, &error))?;
        if let Some((name, _)) = leg.figures.iter().find(|(_, value)| !value.is_finite()) {
            return Err(Trouble::Failed(format!("the figure {name} of {} {} round {} is not a number", leg.case, leg.arm, leg.round)));
        }
        self.write(&path, &text_of(leg)?)
    }

    /// A leg, if it has been run and its file is whole. What is here need not be run again.
    pub fn leg(&self, case: &str, arm: &str, round: u32) -> Option<Leg> {
        read_leg(&self.path_of(case, arm, round), case, arm, round).ok().flatten()
    }

    /// All of it. Files that cannot be used are told of, and the others used.
    ///
    /// # Errors
    /// As [`Store::evaluation`].
    pub fn read(&self) -> Result<Kept, Trouble> {
        let evaluation = self.evaluation()?;
        let (mut legs, mut damaged, mut known) = (Vec::new(), Vec::new(), BTreeSet::new());
        for case in &evaluation.cases {
            for round in 1..=case.rounds {
                for arm in &case.arms {
                    let path = self.path_of(&case.id, &arm.id, round);
                    match read_leg(&path, &case.id, &arm.id, round) {
                        Ok(leg) => legs.extend(leg),
                        Err(why) => damaged.push(NotMeasured { what: format!("{} {} round {round}", case.id, arm.id), why }),
                    }
                    known.insert(path);
                }
            }
        }
        for path in self.files().into_iter().filter(|path| !known.contains(path)) {
            let what = path.strip_prefix(&self.place).unwrap_or(&path).display().to_string();
            damaged.push(NotMeasured { what, why: "the plan has no such run; the file was ignored".into() });
        }
        Ok(Kept { evaluation, legs, damaged })
    }

    fn path_of(&self, case: &str, arm: &str, round: u32) -> PathBuf {
        self.place.join(LEGS).join(case).join(format!("{arm}-{round}.json"))
    }

    /// All files of legs, sorted. Hidden ones are what an interrupted write left.
    fn files(&self) -> Vec<PathBuf> {
        let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect::<Vec<_>>();
        let mut files: Vec<PathBuf> = entries(&self.place.join(LEGS)).iter().flat_map(|case| entries(case)).collect();
        files.retain(|path| path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.')));
        files.sort();
        files
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), Trouble> {
        write_whole(path, text.as_bytes())
    }
}

/// Writes a file so that it is there as a whole or as it was before: durable in another place, then renamed.
///
/// # Errors
/// If it cannot be written.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Trouble> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let beside = parent.join(format!(".{name}.new"));
    let all = || -> std::io::Result<()> {
        let mut file = File::create(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        File::open(parent)?.sync_all()
    };
    all().map_err(|error| {
        // What could not be finished is of no use; if it cannot be removed either, the first error says why.
        let _ = fs::remove_file(&beside);
        Trouble::io("write", path, &error)
    })
}

fn text_of<T: serde::Serialize>(value: &T) -> Result<String, Trouble> {
    serde_json::to_string_pretty(value)
        .map(|text| text + "\n")
        .map_err(|error| Trouble::Failed(format!("cannot be written as JSON: {error}")))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c))
}

/// A leg's file; `None` if there is none. The error is a sentence for the report.
fn read_leg(path: &Path, case: &str, arm: &str, round: u32) -> Result<Option<Leg>, String> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("its file cannot be read: {error}")),
    };
    let leg: Leg =
        serde_json::from_str(&text).map_err(|error| format!("its file is damaged ({error}); the same run command measures it again"))?;
    if (leg.case.as_str(), leg.arm.as_str(), leg.round) != (case, arm, round) {
        return Err(format!("its file holds another leg ({} {} round {})", leg.case, leg.arm, leg.round));
    }
    Ok(Some(leg))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{self, Truth};

    fn stored() -> (tempfile::TempDir, Store, Evaluation, Vec<Leg>) {
        let place = tempfile::tempdir().expect("a directory");
        let (evaluation, legs) = synthetic::one_case(&Truth::default(), 1);
        let store = Store::create(&place.path().join("out"), &evaluation).expect("creates");
        for leg in &legs {
            store.put(leg).expect("puts");
        }
        (place, store, evaluation, legs)
    }

    #[test]
    fn what_is_put_is_read_again_in_the_order_of_the_plan() {
        let (_place, store, evaluation, legs) = stored();
        let again = Store::open(store.place()).expect("opens");
        assert_eq!(again.read().expect("reads"), Kept { evaluation, legs: legs.clone(), damaged: Vec::new() });
        assert_eq!(again.leg(&legs[0].case, &legs[0].arm, 1).as_ref(), Some(&legs[0]));
        assert_eq!(again.leg(&legs[0].case, &legs[0].arm, 99), None);
    }

    #[test]
    fn a_directory_with_something_else_is_refused() {
        let (place, store, evaluation, _) = stored();
        let told = Store::create(store.place(), &evaluation).expect_err("is refused").to_string();
        assert!(told.contains("holds an evaluation already; the same command goes on with it"), "{told}");
        let other = place.path().join("other");
        fs::create_dir(&other).expect("a directory");
        fs::write(other.join("letter.txt"), "dear").expect("a file");
        let told = Store::create(&other, &evaluation).expect_err("is refused").to_string();
        assert!(told.contains("is not empty (letter.txt is in it); name a directory of its own"), "{told}");
        let mut strange = evaluation;
        strange.cases[0].id = "../x".into();
        assert!(Store::create(&place.path().join("third"), &strange).is_err());
        assert!(!place.path().join("third").exists());
    }

    #[test]
    fn what_is_not_an_evaluation_is_told_in_one_sentence() {
        let (place, store, _, _) = stored();
        let told = |store: &Path| Store::open(store).expect_err("is refused").to_string();
        assert!(told(&place.path().join("none")).contains("holds no evaluation; name the directory"));
        let plan = store.place().join(PLAN);
        for (text, words) in [
            ("{\"a\": 1}", "is not an evaluation: it does not say its format"),
            ("once upon", "is not an evaluation: expected value"),
            ("{\"format\": 1}", "is not an evaluation: missing field"),
            ("{\"format\": 9}", "has format 9, and this version of hearth reads format 1; use the version"),
        ] {
            fs::write(&plan, text).expect("writes");
            let told = told(store.place());
            assert!(told.contains(words) && !told.contains('\n'), "{told}");
        }
    }

    #[test]
    fn a_damaged_leg_is_named_and_measured_again() {
        let (_place, store, _, legs) = stored();
        let (first, second) = (&legs[0], &legs[1]);
        fs::write(store.path_of(&first.case, &first.arm, first.round), "{\"case\": \"x").expect("writes");
        fs::write(store.path_of(&second.case, &second.arm, second.round), serde_json::to_string(first).expect("is JSON")).expect("writes");
        fs::write(store.path_of(&first.case, "nobody", 1), "{}").expect("writes");
        // What an interrupted write leaves is nothing to be told of.
        fs::write(store.place().join(LEGS).join(&first.case).join(".x.json.new"), "{").expect("writes");
        assert_eq!(store.leg(&first.case, &first.arm, first.round), None);
        let kept = store.read().expect("reads");
        assert_eq!(kept.legs, legs[2..]);
        let told: Vec<&str> = kept.damaged.iter().map(|one| one.why.as_str()).collect();
        assert!(told[0].contains("is damaged") && told[1].contains("holds another leg") && told[2].contains("no such run"), "{told:?}");
        store.put(first).expect("puts");
        assert_eq!(store.leg(&first.case, &first.arm, first.round).as_ref(), Some(first));
    }

    #[test]
    fn figures_that_are_no_numbers_are_not_kept() {
        let (_place, store, _, legs) = stored();
        let mut leg = legs[0].clone();
        leg.figures.insert("rate".into(), f64::NAN);
        assert!(store.put(&leg).expect_err("is refused").to_string().contains("rate"));
        assert_eq!(store.leg(&leg.case, &leg.arm, leg.round).as_ref(), Some(&legs[0]));
    }
}

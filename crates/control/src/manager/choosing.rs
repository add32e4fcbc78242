//! Which objects are meant: by name or number, kind and application.

use super::Manager;
use api::error::ControlError;
use api::{ObjectQuery, ObjectSet};
use applications::discovery::{Object, ObjectKind};
use insight::Insight;
use insight::objects::Objects;

/// What the name of a table ends with that is one with its clustered index.
const CLUSTERED: [&str; 2] = ["/PRIMARY", "/GEN_CLUST_INDEX"];
/// Objects told that a name may mean.
const MEANT_MAX: usize = 8;
/// Names told that are like one that is not there.
const NEAR_MAX: usize = 5;

/// One object with what stands beside it.
pub(super) struct Chosen {
    pub(super) volume: String,
    pub(super) object: Object,
    pub(super) instance: Option<String>,
}

impl Chosen {
    /// Where it is and what tells it from others of its name.
    fn told(&self) -> String {
        let instance = self.instance.as_ref().map_or_else(String::new, |instance| format!(" in /{instance}"));
        format!("{}:{}{instance} (number {})", self.volume, self.object.name, self.object.id.0)
    }
}

impl Manager {
    /// The objects that a policy, or a preload, is for.
    pub(super) fn chosen_by(&self, set: &ObjectSet) -> Result<Vec<Chosen>, ControlError> {
        if let Some(volume) = &set.volume {
            self.volume_record(volume)?;
        }
        let insight = self.insight();
        let query = |object: Option<&String>| ObjectQuery {
            volume: set.volume.clone(),
            application: set.application.clone(),
            kind: set.kind.clone(),
            object: object.cloned(),
            ..ObjectQuery::default()
        };
        check_there_are(&insight, &query(None))?;
        if set.objects.is_empty() {
            let chosen = chosen(&insight, &query(None));
            if chosen.is_empty() {
                let what = set.kind.as_ref().map_or_else(|| "objects".into(), |kind| format!("objects of the kind \"{kind}\""));
                return Err(ControlError::Analysis(format!("no {what} were found there"), "see `hearth object list`".into()));
            }
            return Ok(chosen);
        }
        let mut all = Vec::new();
        for name in &set.objects {
            let query = query(Some(name));
            all.push(one_of(chosen(&insight, &query), name, || no_object(&insight, &query, name))?);
        }
        Ok(all)
    }
}

/// What is known of the objects of all volumes, or of one volume or device in trial.
pub(super) fn objects_in<'a>(insight: &'a Insight, name: Option<&'a str>) -> Vec<(&'a str, &'a Objects)> {
    match name {
        None => insight.objects().map(|(name, objects)| (name.as_str(), objects)).collect(),
        Some(name) => insight.objects_of(name).map(|objects| (name, objects)).into_iter().collect(),
    }
}

/// The objects that are asked for.
pub(super) fn chosen(insight: &Insight, query: &ObjectQuery) -> Vec<Chosen> {
    // `VOLUME:NAME` names the volume too.
    let (volume, name) = match query.object.as_deref().and_then(|text| text.split_once(':')) {
        Some((volume, name)) if insight.objects_of(volume).is_some() => (Some(volume), Some(name)),
        _ => (query.volume.as_deref(), query.object.as_deref()),
    };
    let Some(name) = name else { return those_of(insight, volume, query, |_| true) };
    let called = those_of(insight, volume, query, |object| name == object.name || name.parse() == Ok(object.id.0));
    if called.is_empty() { those_of(insight, volume, query, |object| is_table(object, name)) } else { called }
}

/// Whether a table is called so: the index that holds its rows may be left out.
fn is_table(object: &Object, name: &str) -> bool {
    object.kind == ObjectKind::Table && CLUSTERED.iter().any(|index| object.name.strip_suffix(index) == Some(name))
}

fn those_of(insight: &Insight, volume: Option<&str>, query: &ObjectQuery, is_it: impl Fn(&Object) -> bool) -> Vec<Chosen> {
    let mut all = Vec::new();
    for (of, objects) in objects_in(insight, volume) {
        let Some(found) = objects.found() else { continue };
        for object in found.objects.iter().filter(|object| is_it(object)) {
            let application = found.application(object.application);
            let instance = application.and_then(|application| application.instance.as_deref());
            let is_of = query
                .application
                .as_deref()
                .is_none_or(|wanted| wanted.parse() == Ok(object.application.0) || instance == Some(wanted.trim_start_matches('/')));
            if is_of && query.kind.as_deref().is_none_or(|kind| kind == object.kind.name()) {
                all.push(Chosen { volume: of.to_owned(), object: object.clone(), instance: instance.map(Into::into) });
            }
        }
    }
    all
}

/// Refuses kinds and applications that there are none of.
pub(super) fn check_there_are(insight: &Insight, query: &ObjectQuery) -> Result<(), ControlError> {
    if let Some(kind) = query.kind.as_ref().filter(|kind| ObjectKind::ALL.iter().all(|known| known.name() != kind.as_str())) {
        let kinds = ObjectKind::ALL.map(ObjectKind::name).join(", ");
        return Err(ControlError::BadOption {
            option: "--kind",
            problem: format!("is \"{kind}\""),
            remedy: format!("write one of {kinds}"),
        });
    }
    let Some(wanted) = &query.application else { return Ok(()) };
    let mut found = objects_in(insight, query.volume.as_deref()).into_iter().filter_map(|(_, objects)| objects.found());
    let is_it = |application: &applications::discovery::Application| {
        wanted.parse() == Ok(application.id.0) || application.instance.as_deref() == Some(wanted.trim_start_matches('/'))
    };
    if found.any(|found| found.applications.iter().any(is_it)) {
        return Ok(());
    }
    Err(ControlError::Unknown { named: "application", name: wanted.clone() })
}

/// That there is no object of a name, with names that are like it.
pub(super) fn no_object(insight: &Insight, query: &ObjectQuery, name: &str) -> ControlError {
    let all = those_of(insight, query.volume.as_deref(), query, |_| true);
    let names: Vec<&str> = all.iter().map(|one| one.object.name.as_str()).collect();
    let near = near(&names, name);
    if near.is_empty() {
        return ControlError::Unknown { named: "object", name: name.into() };
    }
    let remedy = format!("names like it: {}; list all with `hearth object list`", near.join(", "));
    ControlError::UnknownNear { named: "object", name: name.into(), remedy }
}

/// The names that end with a text, or else have it in them, whatever the size of letters; a few.
fn near<'a>(names: &[&'a str], text: &str) -> Vec<&'a str> {
    // Of "orders", "shop.orders" and "shop/orders" only the last part is what people remember.
    let last = text.rsplit(['.', '/', ':']).find(|part| !part.is_empty() && *part != "PRIMARY").unwrap_or_default().to_lowercase();
    if last.is_empty() {
        return Vec::new();
    }
    let rank = |name: &str| {
        let name = name.to_lowercase();
        let table = CLUSTERED.iter().find_map(|index| name.strip_suffix(&index.to_lowercase())).unwrap_or(&name);
        if table.ends_with(&last) { Some(0) } else { name.contains(&last).then_some(1) }
    };
    let mut near: Vec<(u8, &str)> = names.iter().filter_map(|name| Some((rank(name)?, *name))).collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(NEAR_MAX).map(|(_, name)| name).collect()
}

/// The one of that name.
fn one_of(mut chosen: Vec<Chosen>, name: &str, unknown: impl FnOnce() -> ControlError) -> Result<Chosen, ControlError> {
    if chosen.len() > 1 {
        let mut which: Vec<String> = chosen.iter().take(MEANT_MAX).map(Chosen::told).collect();
        if chosen.len() > MEANT_MAX {
            which.push(format!("{} more", chosen.len() - MEANT_MAX));
        }
        return Err(ControlError::Analysis(
            format!("\"{name}\" may mean {}: {}", types::counted(chosen.len() as u64, "object"), which.join(", ")),
            "name the volume (VOLUME:NAME), the application (--app), or the number".into(),
        ));
    }
    chosen.pop().ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_like_one_are_told() {
        let names = ["shop.orders/PRIMARY", "shop.orders/ix_customer", "shop.old_orders/PRIMARY", "shop.items/PRIMARY", "redo"];
        assert_eq!(near(&names, "orders"), ["shop.old_orders/PRIMARY", "shop.orders/PRIMARY", "shop.orders/ix_customer"]);
        assert_eq!(near(&names, "v:Shop.Items"), ["shop.items/PRIMARY"]);
        assert_eq!(near(&names, "shop.history"), [""; 0]);
        assert_eq!(near(&names, "/"), [""; 0]);
        let many: Vec<String> = (0..20).map(|n| format!("d.t{n}")).collect();
        assert_eq!(near(&many.iter().map(String::as_str).collect::<Vec<_>>(), "t1").len(), NEAR_MAX);
    }
}

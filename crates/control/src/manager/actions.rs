//! From an action to the room that carries it out.

use super::Manager;
use api::error::ControlError;
use api::{Action, Answer, Done, InsightAction};

impl Manager {
    /// Carries out one action. May block for as long as the devices need: call it from a thread that may wait.
    ///
    /// # Errors
    /// Every error says what to do; nothing is half done that a later call or start would not finish or undo.
    pub fn handle(&self, action: Action) -> Result<Answer, ControlError> {
        match action {
            Action::Daemon => Ok(Answer::Daemon(self.daemon_view())),
            Action::PoolCreate(create) => self.pool_create(&create).map(|p| Answer::Pool(Box::new(p))),
            Action::PoolList => Ok(Answer::Pools(self.pool_views())),
            Action::PoolShow { name } => self.pool_view(&name).map(|p| Answer::Pool(Box::new(p))),
            Action::PoolSet { name, set } => self.pool_set(&name, &set).map(|p| Answer::Pool(Box::new(p))),
            Action::PoolReplace { name, replace } => self.pool_replace(&name, &replace).map(|j| Answer::Job(Box::new(j))),
            Action::PoolStart { name } => self.pool_start(&name).map(so),
            Action::PoolDestroy { name, force } => {
                let summary = self.file_left_by(&name);
                self.pool_destroy(&name, force).map(|()| summary.map_or_else(|| done(()), so))
            }
            Action::VolumeAdd(add) => self.volume_add(&add).map(|v| Answer::Volume(Box::new(v))),
            Action::Attach(attach) => self.attach_live(&attach).map(so),
            Action::Detach { name } => self.detach_live(&name).map(so),
            Action::VolumeList => Ok(Answer::Volumes(self.volume_views())),
            Action::VolumeShow { name } => self.volume_view(&name).map(|v| Answer::Volume(Box::new(v))),
            Action::VolumeSet { name, set } => self.volume_set(&name, &set),
            Action::VolumeRename { name, to } => self.volume_rename(&name, &to).map(so),
            Action::VolumeStart { name } => self.volume_start(&name).map(so),
            Action::VolumeStop { name, give_up, force } => self.volume_stop(&name, give_up, force).map(so),
            Action::VolumeDropCache { name } => self.volume_drop_cache(&name).map(so),
            Action::VolumeGrow { name } => self.volume_grow(&name).map(so),
            Action::VolumeDestage { name } => self.volume_destage(&name).map(|j| Answer::Job(Box::new(j))),
            Action::VolumeWarm { name, warm } => self.volume_warm(&name, warm).map(|j| Answer::Job(Box::new(j))),
            Action::VolumeRemove { name, drop_dirty } => self.volume_remove(&name, drop_dirty).map(|j| Answer::Job(Box::new(j))),
            Action::ShareAdd { volume, add } => self.share_add(&volume, &add).map(|s| Answer::Share(Box::new(s))),
            Action::ShareList => Ok(Answer::Shares(self.share_views())),
            Action::ShareShow { volume, protocol } => self.share_view(&volume, protocol).map(|s| Answer::Share(Box::new(s))),
            Action::ShareRemove { volume, protocol, force } => self.share_remove(&volume, protocol, force).map(so),
            Action::DiskCreate(create) => self.disk_create(&create),
            Action::DiskList => Ok(Answer::Disks(self.disk_views())),
            Action::DiskShow { name } => self.disk_view(&name).map(|d| Answer::Disk(Box::new(d))),
            Action::DiskSet { name, set } => self.disk_set(&name, &set),
            Action::DiskRemove { name, lose_content } => self.disk_remove(&name, lose_content).map(done),
            Action::PoolLook(import) => self.pool_look(&import).map(|found| Answer::PoolFound(Box::new(found))),
            Action::PoolImport(import) => self.pool_import(&import).map(|p| Answer::Pool(Box::new(p))),
            Action::PoolTakeBack { name } => self.pool_take_back(&name).map(|j| Answer::Job(Box::new(j))),
            Action::StatsAll => Ok(Answer::StatsAll(self.stats_all())),
            Action::Stats { name } => self.stats(&name),
            Action::JobList => Ok(Answer::Jobs(self.shared.jobs.list().iter().map(|j| j.view()).collect())),
            Action::JobShow { id } => self.shared.jobs.get(id).map(|j| Answer::Job(Box::new(j.view()))),
            Action::JobCancel { id } => self.shared.jobs.get(id).map(|job| {
                job.cancel();
                Answer::Job(Box::new(job.view()))
            }),
            Action::JobResume { id } => self.job_resume(id).map(|j| Answer::Job(Box::new(j))),
            Action::PoolCheck { name } => self.pool_check(&name).map(|j| Answer::Job(Box::new(j))),
            Action::VolumeWhy { name, start_bytes, length_bytes } => {
                self.volume_why(&name, start_bytes, length_bytes).map(|why| Answer::Why(Box::new(why)))
            }
            Action::VolumeMap { name, start_bytes, end_bytes, cells } => {
                self.volume_map(&name, start_bytes, end_bytes, cells).map(|map| Answer::Map(Box::new(map)))
            }
            Action::Insight(action) => self.handle_insight(action),
            Action::Sample => Ok(Answer::Sample(self.sample())),
            Action::History(query) => self.history(&query).map(|h| Answer::History(Box::new(h))),
            Action::DeviceList => self.device_list().map(Answer::Devices),
            Action::DeviceExamine(examine) => self.device_examine(&examine.path).map(|d| Answer::Device(Box::new(d))),
            Action::Events { after } => Ok(Answer::Events(self.shared.events.after(after))),
        }
    }

    /// Carries out an action about what loads need.
    fn handle_insight(&self, action: InsightAction) -> Result<Answer, ControlError> {
        match action {
            InsightAction::AnalysisStart(start) => self.analysis_start(&start).map(|view| Answer::Analysis(Box::new(view))),
            InsightAction::AnalysisList => Ok(Answer::Analyses(self.analysis_views())),
            InsightAction::AnalysisShow { name } => self.analysis_view(&name).map(|view| Answer::Analysis(Box::new(view))),
            InsightAction::AnalysisStop { name } => self.analysis_stop(&name).map(|view| Answer::Analysis(Box::new(view))),
            InsightAction::AnalysisForget { name } => self.analysis_forget(&name).map(done),
            InsightAction::StreamList { name } => self.streams(name.as_deref()).map(Answer::Streams),
            InsightAction::StreamRuleList => Ok(Answer::StreamRules(Box::new(self.stream_rules()))),
            InsightAction::StreamRuleAdd(rule) => self.stream_rule_add(&rule).map(|view| Answer::StreamRule(Box::new(view))),
            InsightAction::StreamRuleRemove { id } => self.stream_rule_remove(id).map(done),
            InsightAction::AdviceApply { id, dry_run, no_preload } => {
                self.advice_apply(id, dry_run, no_preload).map(|done| Answer::AdviceApplied(Box::new(done)))
            }
            InsightAction::AdviceVerify { id } => self.advice_verify(id).map(|view| Answer::AdviceVerified(Box::new(view))),
            InsightAction::ApplicationList { volume, logins } => self.applications(volume.as_deref(), logins).map(Answer::Applications),
            InsightAction::ApplicationConnect { id, connect } => {
                self.app_connect(id, &connect).map(|done| Answer::Connected(Box::new(done)))
            }
            InsightAction::ApplicationDisconnect { id, volume } => self.app_disconnect(id, volume.as_deref()).map(so),
            InsightAction::ApplicationDiscover { volume } => self.discover_as_job(&volume).map(|job| Answer::Job(Box::new(job))),
            InsightAction::ObjectList(query) => self.objects(&query).map(Answer::Objects),
            InsightAction::ObjectPreload(asked) => self.object_preload(&asked).map(|done| Answer::Preload(Box::new(done))),
            InsightAction::ObjectSet(set) => self.object_set(&set).map(|done| Answer::PolicyDone(Box::new(done))),
            InsightAction::Advise(ask) => self.advise(&ask).map(Answer::Advice),
            InsightAction::AdviceShow { id } => self.advice(id).map(|advice| Answer::AdviceOne(Box::new(advice))),
        }
    }
}

/// It is done, and there is nothing to show.
fn done((): ()) -> Answer {
    Answer::Done(Done::default())
}

/// It is done, and this is what.
fn so(summary: String) -> Answer {
    Answer::Done(Done::so(summary))
}

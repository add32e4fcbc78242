//! `hearth attach` and `hearth detach`: a cache under a device in use.

use crate::cli::VolumeOptions;
use crate::commands::Session;
use crate::failure::Failure;
use crate::progress::patiently;
use crate::request;
use api::Done;
use api::names::Named;
use clap::Args;

/// What is attached to what.
#[derive(Args, Debug)]
pub struct Attach {
    /// A device-mapper device or logical volume, in use or not, for instance /dev/vg/lv
    pub device: String,
    /// Name of the new volume
    #[arg(long)]
    pub name: String,
    /// The pool that caches it
    #[arg(long, required_unless_present = "trial", conflicts_with = "trial")]
    pub pool: Option<String>,
    /// Only measure what passes: nothing is cached, nothing is written anywhere, and nothing remains after `detach`, a stop of the daemon
    /// or a reboot
    #[arg(long)]
    pub trial: bool,
    /// Its options
    #[command(flatten)]
    pub options: VolumeOptions,
}

impl Session {
    /// `hearth attach`.
    ///
    /// # Errors
    /// With the sentence to print.
    pub fn attach(&self, attach: &Attach) -> Result<(), Failure> {
        let body = api::Attach {
            name: request::name(Named::Volume, &attach.name)?.into(),
            device: request::absolute("the device", &attach.device)?,
            pool: attach.pool.as_deref().map(|pool| request::name(Named::Pool, pool).map(Into::into)).transpose()?,
            trial: attach.trial,
            options: request::options(&attach.options, false)?,
        };
        let done: Done = patiently("attaching the device", || self.client.send("POST", "/attachments", &body))?;
        self.print(&done, |done| format!("{}\n", done.summary.as_deref().unwrap_or("attached")))
    }

    /// `hearth detach`.
    ///
    /// # Errors
    /// With the sentence to print.
    pub fn detach(&self, name: &str) -> Result<(), Failure> {
        let path = format!("/attachments/{}", request::name(Named::Volume, name)?);
        let done: Done = patiently("detaching the device", || self.client.delete(&path))?;
        self.print(&done, |done| format!("{}\n", done.summary.as_deref().unwrap_or("detached")))
    }
}

//! The regions of a volume: file systems that are known, and all others, with the reason why
//! nothing in them has a name.

use super::limits::{REGIONS_MAX, SIGNS_BYTES};
use super::looks::Nameless;
use super::source::Source;
use crate::filesystems::lvm::{self, Group, Runs};
use crate::filesystems::{FileSystem, Refused, Volume, ext4, starts_of, xfs};
use std::ops::Range;
use std::sync::Arc;

/// Space before the first partition or behind a file system that is not worth a look: alignment,
/// and copies of partition tables.
const GAP_BYTES: u64 = 16 << 20;

/// Logical volumes of a group that are looked at.
const LOGICAL_MAX: usize = 128;

/// Why a region cannot be named.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Reason {
    /// Nothing known begins there: a raw tablespace, or a file system of another kind.
    #[error("no file system that is known begins here")]
    Unknown,
    /// The start of the region could not be read.
    #[error("the start of it cannot be read")]
    Unreadable,
    /// ext4, but not one that can be read.
    #[error("ext4: {0}")]
    Ext4(ext4::Refused),
    /// XFS, but not one that can be read.
    #[error("XFS: {0}")]
    Xfs(xfs::Refused),
    /// A file system, volume manager or container that is known by its sign only.
    #[error("{0} cannot be read")]
    Other(&'static str),
}

/// A region of the volume where nothing has a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blind {
    /// Where.
    pub bytes: Range<u64>,
    /// Why.
    pub reason: Reason,
    /// Which engines' pages lie where, by looks at a few places.
    pub seen: Vec<Nameless>,
}

/// A file system that can be read.
pub(super) struct Placed {
    /// Its first byte on the volume.
    pub(super) start: u64,
    /// What it is read from: the volume, or a logical volume on it.
    pub(super) on: Volume,
    /// Where the bytes of that logical volume lie.
    pub(super) runs: Option<Arc<Runs>>,
    pub(super) file_system: FileSystem,
}

/// What the volume is made of.
pub(super) struct Regions {
    pub(super) file_systems: Vec<Placed>,
    pub(super) blind: Vec<Blind>,
}

/// Looks where file systems may begin.
pub(super) async fn regions(volume: &Volume, volume_bytes: u64) -> Regions {
    let mut source = Source::new(volume, REGIONS_MAX * SIGNS_BYTES);
    let mut starts = starts_of(volume).await;
    starts.retain(|start| *start < volume_bytes);
    let mut regions = Regions { file_systems: Vec::new(), blind: Vec::new() };
    for (index, start) in starts.iter().copied().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(volume_bytes);
        let mut blind = |bytes: Range<u64>, reason| regions.blind.push(Blind { bytes, reason, seen: Vec::new() });
        let is_table = start == 0 && starts.len() > 1;
        match FileSystem::open_on(volume, start).await {
            Ok(file_system) => {
                let its_end = file_system.end().min(end);
                regions.file_systems.push(Placed { start, on: volume.clone(), runs: None, file_system });
                if end - its_end > GAP_BYTES {
                    blind(its_end..end, Reason::Unknown);
                }
            }
            _ if is_table && end <= GAP_BYTES => {}
            Err(Refused::Unreadable) => blind(start..end, Reason::Unreadable),
            Err(Refused::Absent) => match lvm::group(volume, &(start..end)).await {
                Some(group) => logical(volume, start..end, group, &mut regions).await,
                None => blind(start..end, sign(&mut source, start..end).await),
            },
            Err(Refused::Ext4(refused)) => blind(start..end, Reason::Ext4(refused)),
            Err(Refused::Xfs(refused)) => blind(start..end, Reason::Xfs(refused)),
        }
    }
    regions
}

/// Looks for file systems on the logical volumes of a group.
async fn logical(volume: &Volume, all: Range<u64>, group: Group, regions: &mut Regions) {
    let blind = |bytes: Range<u64>, reason| Blind { bytes, reason, seen: Vec::new() };
    let others = group.others || group.followed.len() > LOGICAL_MAX;
    let mut used = Vec::new();
    for runs in group.followed.into_iter().take(LOGICAL_MAX) {
        used.extend(runs.places());
        let on = volume.with(runs.clone());
        let reason = match FileSystem::open_on(&on, 0).await {
            Ok(file_system) => {
                regions.file_systems.push(Placed { start: runs.start(), on, runs: Some(runs), file_system });
                continue;
            }
            Err(Refused::Unreadable) => Reason::Unreadable,
            Err(Refused::Absent) => sign(&mut Source::new(&on, SIGNS_BYTES), 0..runs.bytes()).await,
            Err(Refused::Ext4(refused)) => Reason::Ext4(refused),
            Err(Refused::Xfs(refused)) => Reason::Xfs(refused),
        };
        regions.blind.extend(runs.places().map(|bytes| blind(bytes, reason)));
    }
    // What is free tells nothing; what other volumes take lies somewhere between.
    used.sort_unstable_by_key(|bytes| bytes.start);
    let mut at = all.start;
    for bytes in used.into_iter().chain(std::iter::once(all.end..all.end)).filter(|_| others) {
        if bytes.start.saturating_sub(at) > GAP_BYTES {
            regions.blind.push(blind(at..bytes.start, Reason::Other("a striped, mirrored, thin or cached volume of LVM")));
        }
        at = at.max(bytes.end);
    }
}

/// What the start of a region tells, for who looks at it for long: if that changes, the region has become another.
#[derive(PartialEq, Eq)]
pub(super) struct Start {
    /// Where file systems may begin on the volume.
    starts: Vec<u64>,
    /// Why none begins here; `None`: one does.
    refused: Option<Refused>,
    sign: Reason,
}

impl Start {
    /// Reads it.
    pub(super) async fn of(volume: &Volume, region: &Range<u64>) -> Start {
        Start {
            starts: starts_of(volume).await,
            refused: FileSystem::open_on(volume, region.start).await.err(),
            sign: sign(&mut Source::new(volume, SIGNS_BYTES), region.clone()).await,
        }
    }
}

/// What a region without a known file system says that it is.
async fn sign(source: &mut Source<'_>, region: Range<u64>) -> Reason {
    let len = SIGNS_BYTES.min((region.end - region.start) / 512 * 512);
    let mut bytes = vec![0; len as usize];
    if bytes.is_empty() || !source.read(region.start, &mut bytes).await {
        return Reason::Unreadable;
    }
    let is = |at: usize, word: &[u8]| bytes.get(at..).is_some_and(|rest| rest.starts_with(word));
    // LVM's label may lie in any of the first four sectors.
    if (0..4).any(|sector| is(512 * sector, b"LABELONE")) {
        return Reason::Other("LVM");
    }
    let signs: [(usize, &[u8], &str); 8] = [
        (3, b"NTFS    ", "NTFS"),
        (3, b"ReFS", "ReFS"),
        (3, b"EXFAT   ", "exFAT"),
        (0, b"LUKS\xba\xbe", "LUKS encryption"),
        (0x1_0040, b"_BHRfS_M", "btrfs"),
        (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "MD RAID"),
        (4086, b"SWAPSPACE2", "swap space"),
        (3, b"-FVE-FS-", "BitLocker encryption"),
    ];
    signs.into_iter().find(|(at, word, _)| is(*at, word)).map_or(Reason::Unknown, |(_, _, name)| Reason::Other(name))
}

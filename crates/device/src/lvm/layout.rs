//! The beginning of a physical volume, and where its texts lie. Bytes in, numbers out: who calls reads.

use types::SECTOR_BYTES;

/// A label lies in one of the first sectors.
const LABEL_SECTORS: usize = 4;
const LABEL: &[u8] = b"LABELONE";
/// The header may begin in the last of these sectors, and is one long.
pub const HEAD_BYTES: u64 = 2 * LABEL_SECTORS as u64 * SECTOR_BYTES;
/// A physical volume has at most two areas; LVM's own limit for lists is far below this.
const AREAS_MAX: usize = 64;
const AREA_MAGIC: &[u8] = b" LVM2 x[5A%r0N*>";
/// Bytes of an area's header.
pub const AREA_HEADER_BYTES: u64 = 512;
/// Where the places of texts begin in an area's header, and how long each is: offset, size, checksum, flags.
pub(super) const PLACES: usize = 40;
const PLACE_BYTES: usize = 24;
/// LVM does not use this text.
const IGNORED: u64 = 1;
/// Of a text. The default area has 1 MiB.
const TEXT_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a UUID without hyphens.
const ID_BYTES: usize = 32;

/// LVM's data makes no sense.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("LVM's metadata there {0}")]
pub struct Broken(pub &'static str);

/// The header of a physical volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Its UUID, without hyphens.
    pub id: String,
    /// The areas for metadata: first byte and size.
    pub areas: Vec<(u64, u64)>,
}

/// Where a text lies in its area, with its checksum.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    offset_bytes: u64,
    length_bytes: u64,
    area_bytes: u64,
    sum: u64,
}

impl Place {
    /// Its two parts, offset in the area and length each: it goes on behind the header where it does not fit before the end.
    #[must_use]
    pub fn parts(&self) -> [(u64, u64); 2] {
        let first_bytes = self.length_bytes.min(self.area_bytes - self.offset_bytes);
        [(self.offset_bytes, first_bytes), (AREA_HEADER_BYTES, self.length_bytes - first_bytes)]
    }

    /// Bytes of it.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// The text of its bytes.
    ///
    /// # Errors
    /// They do not match the checksum.
    pub fn text(&self, bytes: &[u8]) -> Result<String, Broken> {
        if u64::from(checksum(bytes)) != self.sum {
            return Err(Broken("does not match its checksum"));
        }
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
}

pub(super) fn little(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// The header in the first [`HEAD_BYTES`] of a device; `None` if it is no physical volume.
///
/// # Errors
/// It is cut short.
pub fn header(head: &[u8]) -> Result<Option<Header>, Broken> {
    let sector = SECTOR_BYTES as usize;
    let label = (0..LABEL_SECTORS).map(|nth| nth * sector).find(|at| head.get(*at..at + 8) == Some(LABEL));
    let Some(label) = label else { return Ok(None) };
    let cut = Broken("has a header that is cut short");
    let Some(header) = head.get(label..label + sector) else { return Err(cut) };
    // The UUID and the size of the device lie before two lists of runs, each ended by an empty run: data, then metadata.
    let start = little(&header[20..24]) as usize;
    let lists = start.saturating_add(ID_BYTES + 8);
    let id = header.get(start..start.saturating_add(ID_BYTES)).ok_or(cut)?;
    let runs = header.get(lists..).unwrap_or_default().chunks_exact(16).map(|run| (little(&run[..8]), little(&run[8..])));
    let (mut areas, mut lists_ended) = (Vec::new(), 0);
    for run in runs {
        match (lists_ended, run) {
            (_, (0, 0)) => lists_ended += 1,
            (0, _) => {}
            (_, area) => areas.push(area),
        }
        if lists_ended == 2 && areas.len() <= AREAS_MAX {
            return Ok(Some(Header { id: String::from_utf8_lossy(id).into_owned(), areas }));
        }
    }
    Err(cut)
}

/// Where the text of an area lies, by the area's header; `None` if it has none that counts.
///
/// # Errors
/// The header is not whole, or leads elsewhere.
pub fn place_of_text(header: &[u8], area_bytes: u64) -> Result<Option<Place>, Broken> {
    let is_whole = header.len() as u64 == AREA_HEADER_BYTES
        && header[4..20] == *AREA_MAGIC
        && little(&header[..4]) == u64::from(checksum(&header[4..]));
    if !is_whole {
        return Err(Broken("has an area whose header is not whole"));
    }
    let place = &header[PLACES..PLACES + PLACE_BYTES];
    let [offset_bytes, length_bytes] = [&place[..8], &place[8..16]].map(little);
    let [sum, flags] = [&place[16..20], &place[20..24]].map(little);
    if offset_bytes == 0 || flags & IGNORED != 0 {
        return Ok(None);
    }
    let is_within = (AREA_HEADER_BYTES..area_bytes).contains(&offset_bytes) && length_bytes <= area_bytes - AREA_HEADER_BYTES;
    if !is_within || length_bytes > TEXT_BYTES_MAX {
        return Err(Broken("has a text that does not lie in its area"));
    }
    Ok(Some(Place { offset_bytes, length_bytes, area_bytes, sum }))
}

/// CRC-32 with LVM's own first value, and no last step.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    let bit = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    bytes.iter().fold(0xf597_a6cf, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), bit))
}

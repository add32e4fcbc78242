//! Golden images: the pages of a pool that are not all zero, stored one behind the other as page number u64, count of bytes u16, and as
//! many bytes of the page (the rest is zero). A test writes its image with its name in `HEARTH_WRITE_GOLDEN`, once for each format version.

use std::collections::BTreeMap;

pub type Image = BTreeMap<u64, [u8; 4096]>;

/// Puts whole pages into an image.
pub fn put(image: &mut Image, offset_bytes: u64, bytes: &[u8]) {
    let (pages, []) = bytes.as_chunks::<4096>() else { panic!("whole pages") };
    image.extend((offset_bytes / 4096..).zip(pages.iter().copied()));
}

/// The pages as bytes; those that are not in the image are zero.
pub fn pages(image: &Image, offset_bytes: u64, bytes: usize) -> Vec<u8> {
    let pages = offset_bytes / 4096..(offset_bytes + bytes as u64) / 4096;
    pages.flat_map(|number| image.get(&number).copied().unwrap_or([0; 4096])).collect()
}

pub fn read(mut rest: &[u8]) -> Image {
    let mut image = Image::new();
    while let Some((number, after)) = rest.split_first_chunk::<8>() {
        let (length, after) = after.split_first_chunk::<2>().expect("a length");
        let (bytes, after) = after.split_at(usize::from(u16::from_le_bytes(*length)));
        let mut page = [0; 4096];
        page[..bytes.len()].copy_from_slice(bytes);
        image.insert(u64::from_le_bytes(*number), page);
        rest = after;
    }
    image
}

/// Compares what is written now with the golden bytes, or makes it the golden bytes if so asked.
pub fn compare(mut written: Image, golden: &[u8], name: &str) {
    written.retain(|_, page| page.iter().any(|byte| *byte != 0));
    if std::env::var_os("HEARTH_WRITE_GOLDEN").is_some_and(|wanted| wanted == name) {
        let mut bytes = Vec::new();
        for (number, page) in &written {
            let length = page.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            bytes.extend(number.to_le_bytes());
            bytes.extend((length as u16).to_le_bytes());
            bytes.extend(&page[..length]);
        }
        let path = format!("{}/tests/golden/{name}.pages", env!("CARGO_MANIFEST_DIR"));
        std::fs::write(path, bytes).expect("the golden image is written");
        return;
    }
    let stored = read(golden);
    assert_eq!(written.keys().collect::<Vec<_>>(), stored.keys().collect::<Vec<_>>());
    for (number, page) in &written {
        let first = page.iter().zip(&stored[number]).position(|(now, then)| now != then);
        assert_eq!(first, None, "first other byte of page {number}");
    }
    assert!(golden.len() < 64 << 10, "the image is {} bytes", golden.len());
}

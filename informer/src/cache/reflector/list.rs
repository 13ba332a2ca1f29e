//! Listing: in pages or in one, from which version, and what to do when the server has forgotten it.

use futures::StreamExt;

use super::document::{ListEnd, ListReader};
use super::{Reflector, ReflectorStore, Run};
use crate::cache::list_watch::ListOptions;
use crate::object::{Cacheable, Header, Object};
use crate::{Error, ResourceVersion};

/// Objects in a page, where pages are asked for and nobody said how large.
const PAGE_SIZE: u32 = 500;

/// The objects of a list that came in pages.
struct Listed<K> {
    objects: Vec<Object<K>>,
    resource_version: ResourceVersion,
    pages: usize,
}

impl<K: Cacheable, S: ReflectorStore<K>> Reflector<K, S> {
    /// Brings the store to the state of the server.
    pub(super) async fn list(&self, run: &mut Run) -> Result<(), Error> {
        let mut version = self.list_version(run);
        let mut listed = self.all_pages(run, &version).await;
        if let Err(err) = &listed
            && (err.is_expired() || err.is_version_too_large())
        {
            run.is_last_unavailable = true;
            version = self.list_version(run);
            listed = self.all_pages(run, &version).await;
        }
        let listed = listed?;
        run.is_last_unavailable = false;
        run.comes_in_pages |= version.is_any() && listed.pages > 1;
        *self.last() = listed.resource_version.clone();
        self.store.replace(listed.objects, listed.resource_version);
        self.store.room().await;
        Ok(())
    }

    /// From which version to list: any at first, then one that is not older than what was seen; the newest where that
    /// is forgotten.
    fn list_version(&self, run: &Run) -> ResourceVersion {
        let last = self.last_sync_resource_version();
        if run.is_last_unavailable {
            ResourceVersion::default()
        } else if last.is_empty() {
            ResourceVersion::any()
        } else {
            last
        }
    }

    /// Objects in a page; 0 for no pages.
    fn limit(&self, run: &Run, version: &ResourceVersion) -> u32 {
        match self.options.page_size {
            Some(size) => size,
            None if run.comes_in_pages => PAGE_SIZE,
            // A server answers a list of a certain version out of its cache, if only it is not asked for pages.
            None if !version.is_empty() && !version.is_any() => 0,
            None => PAGE_SIZE,
        }
    }

    async fn all_pages(&self, run: &Run, version: &ResourceVersion) -> Result<Listed<K>, Error> {
        let mut options = ListOptions {
            resource_version: version.clone(),
            limit: self.limit(run, version),
            ..ListOptions::default()
        };
        let mut listed = Listed {
            objects: Vec::new(),
            resource_version: ResourceVersion::default(),
            pages: 0,
        };
        loop {
            let mut is_first = listed.pages == 0;
            let end = match self.page(&options, &mut listed.objects).await {
                Ok(end) => end,
                // The rest of the pages is forgotten: all at once, from the version first asked for.
                Err(err) if err.is_expired() && listed.pages > 0 => {
                    listed.objects.clear();
                    options.limit = 0;
                    options.continue_token.clear();
                    is_first = true;
                    self.page(&options, &mut listed.objects).await?
                }
                Err(err) => return Err(err),
            };
            listed.pages += 1;
            if is_first {
                listed.resource_version = end.resource_version;
            }
            if end.continue_token.is_empty() {
                return Ok(listed);
            }
            options.continue_token = end.continue_token;
        }
    }

    /// Reads one page while it comes in.
    async fn page(&self, options: &ListOptions, objects: &mut Vec<Object<K>>) -> Result<ListEnd, Error> {
        let mut body = self.source.list(options).await?;
        let mut reader = ListReader::default();
        while let Some(piece) = body.next().await {
            reader.push(&piece?, &mut |text, header| objects.extend(self.item(text, header)))?;
        }
        reader.finish(&mut |text, header| objects.extend(self.item(text, header)))
    }

    /// An object of a list; `None` if it is to be dropped.
    pub(super) fn item(&self, text: &str, header: &Header<'_>) -> Option<Object<K>> {
        let key = header.key();
        let version = header.resource_version();
        if let Some(known) = self.store.known(&key)
            && !version.is_empty()
            && *known.resource_version() == version
        {
            return Some(known);
        }
        self.options
            .object(key, text, header)
            .inspect_err(|err| tracing::error!(source = self.source.name(), %err, "an object is dropped"))
            .ok()
    }
}

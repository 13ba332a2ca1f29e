//! Lists objects at a requested version, with or without pages. If this version has expired, lists again without it.

use futures::StreamExt;
use tokio::time::{Instant, timeout, timeout_at};

use super::document::{ListEnd, ListReader};
use super::{Reflector, ReflectorStore, Run, Unread};
use crate::cache::list_watch::ListOptions;
use crate::object::{Cacheable, CachedObject, Header};
use crate::{Error, ResourceVersion, deadline};

/// Default page size, if pages are requested.
const PAGE_SIZE: u32 = 500;

/// A page may take this many times the request timeout in total, as long as data keeps arriving.
const PAGE_SLACK: u32 = 5;

/// All pages of a list.
struct Listed<K> {
    items: Items<K>,
    resource_version: ResourceVersion,
    pages: usize,
}

/// The decoded and the unreadable objects of a list.
pub(super) struct Items<K> {
    pub(super) objects: Vec<CachedObject<K>>,
    pub(super) unread: Vec<Unread>,
}

impl<K> Items<K> {
    fn clear(&mut self) {
        self.objects.clear();
        self.unread.clear();
    }
}

impl<K: Cacheable, S: ReflectorStore<K>> Reflector<K, S> {
    /// Updates the store to the state of the server.
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
        self.contact.listed();
        let Items { objects, unread } = listed.items;
        self.store.replace_keeping(objects, unread, listed.resource_version);
        self.store.room().await;
        Ok(())
    }

    /// Returns the version to request: any version for the first list, later the last version received, or the newest
    /// version if the last version has expired.
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

    /// Returns the maximum number of objects in a page; 0 for no pages.
    fn limit(&self, run: &Run, version: &ResourceVersion) -> u32 {
        match self.options.page_size {
            Some(size) => size,
            None if run.comes_in_pages => PAGE_SIZE,
            // Without a limit, the server serves a list at a given version from its watch cache.
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
            items: Items {
                objects: Vec::new(),
                unread: Vec::new(),
            },
            resource_version: ResourceVersion::default(),
            pages: 0,
        };
        loop {
            let mut is_first = listed.pages == 0;
            let end = match self.page(&options, &mut listed.items).await {
                Ok(end) => end,
                // The remaining pages have expired: list all objects in one request, at the version of the first
                // request.
                Err(err) if err.is_expired() && listed.pages > 0 => {
                    listed.items.clear();
                    options.limit = 0;
                    options.continue_token.clear();
                    is_first = true;
                    self.page(&options, &mut listed.items).await?
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

    /// Requests one page, and parses it while it arrives.
    async fn page(&self, options: &ListOptions, items: &mut Items<K>) -> Result<ListEnd, Error> {
        let mut keep = |text: &str, header: &Header<'_>| match self.item(text, header) {
            Some(Ok(object)) => items.objects.push(object),
            Some(Err(unread)) => items.unread.push(unread),
            None => {}
        };
        let limit = self.options.request_timeout;
        let unanswered = || Error::unanswered(format!("listing {}", self.source.name()), limit);
        let end = deadline::after(Instant::now(), limit.saturating_mul(PAGE_SLACK));
        let asking = timeout(limit, self.source.list(options));
        let mut body = asking.await.map_err(|_| unanswered())??;
        let mut reader = ListReader::new::<K>();
        loop {
            self.contact.heard();
            let due = end.min(deadline::after(Instant::now(), limit));
            let next = timeout_at(due, body.next()).await.map_err(|_| unanswered())?;
            let Some(piece) = next else { break };
            reader.push(&piece?, &mut keep)?;
        }
        reader.finish(&mut keep)
    }

    /// Decodes an object of a list; `None` if it does not have a name.
    pub(super) fn item(&self, text: &str, header: &Header<'_>) -> Option<Result<CachedObject<K>, Unread>> {
        let key = header.key();
        let version = header.resource_version();
        if let Some(known) = self.store.known(&key)
            && !version.is_empty()
            && *known.resource_version() == version
            && known.may_have_uid(&header.metadata.uid.0)
            // A new version of a CRD changes defaults and conversions, but not the versions of objects.
            && self.options.is_from(&known, text, header)
        {
            return Some(Ok(known));
        }
        match self.options.object(key.clone(), text, header) {
            Ok(object) => Some(Ok(object)),
            Err(err) => {
                self.report_unread(&err);
                let uid = header.metadata.uid.0.clone().into_owned();
                (!key.name().is_empty()).then_some(Err(Unread { key, uid }))
            }
        }
    }
}

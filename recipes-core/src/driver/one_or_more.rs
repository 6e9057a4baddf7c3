//! A list that is not empty.

use crate::error::ConfigError;

/// At least one of something, in order. So the driver never meets an empty set.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct OneOrMore<T> {
    first: T,
    others: Vec<T>,
}

impl<T> OneOrMore<T> {
    pub(crate) fn one(first: T) -> Self {
        Self::of(first, Vec::new())
    }

    pub(crate) fn of(first: T, others: Vec<T>) -> Self {
        Self { first, others }
    }

    /// # Errors
    /// [`ConfigError::EmptySet`].
    pub(crate) fn new(items: Vec<T>) -> Result<Self, ConfigError> {
        let mut items = items.into_iter();
        let first = items.next().ok_or(ConfigError::EmptySet)?;
        let others = items.collect();
        Ok(Self { first, others })
    }

    pub(crate) fn first(&self) -> &T {
        &self.first
    }

    pub(crate) fn others(&self) -> &[T] {
        &self.others
    }

    pub(crate) fn into_parts(self) -> (T, Vec<T>) {
        (self.first, self.others)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// `None` as soon as `map` returns it.
    pub(crate) fn try_map<'a, U>(
        &'a self,
        mut map: impl FnMut(&'a T) -> Option<U>,
    ) -> Option<OneOrMore<U>> {
        let first = map(&self.first)?;
        let others = self.others.iter().map(map).collect::<Option<_>>()?;
        Some(OneOrMore { first, others })
    }
}

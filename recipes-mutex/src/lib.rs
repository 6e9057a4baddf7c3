//! Reentrant distributed mutex.

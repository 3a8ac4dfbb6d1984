//! The folder a test works in: temporary, or kept for a look at it.

use std::path::{Path, PathBuf};

/// A folder that is removed with the value unless `BLIZZARD_TESTS_KEEP` names where to keep it.
pub struct WorkDir {
    path: PathBuf,
    _temporary: Option<tempfile::TempDir>,
}

impl WorkDir {
    /// A new folder for the test `name`.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(name: &str) -> Result<WorkDir, String> {
        if let Some(base) = std::env::var_os("BLIZZARD_TESTS_KEEP") {
            let path = PathBuf::from(base).join(name.replace("::", "-"));
            std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            return Ok(WorkDir { path, _temporary: None });
        }
        let temporary = tempfile::Builder::new().prefix("blizzard-test-").tempdir().map_err(|e| e.to_string())?;
        Ok(WorkDir { path: temporary.path().to_path_buf(), _temporary: Some(temporary) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A subfolder, made.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn sub(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.path.join(name);
        std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(path)
    }
}

"""Dataset roots on disk: walked, checked, and stored in saved indexes."""

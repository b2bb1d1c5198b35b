"""Dataset roots as they are on disk: walked, checked, remembered in saved indexes."""

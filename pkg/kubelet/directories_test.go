package kubelet

import (
	"os"
	"path/filepath"
	"testing"
)

// Without a place for our own files (the disk is full, or something else is in the way) the agent starts all the same.
func TestOwnDirectoriesAreNotNeeded(t *testing.T) {
	b := assembled(t, nil, nil)
	own := b.layout.Own()
	if err := os.MkdirAll(filepath.Dir(own), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.makeDirectories(t.Context()); err != nil {
		t.Error(err)
	}
}

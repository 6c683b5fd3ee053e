package numa

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLinesOfAMachine: a run counts only if its last line says that it is done.
func TestLinesOfAMachine(t *testing.T) {
	lines, err := parse([]byte("{\"File\":\"stat\",\"Content\":\"cpu 1\\n\"}\n{\"Situation\":\"a\"}\n{\"Done\":true}\n"))
	if err != nil || len(lines) != 2 || lines[0].Content != "cpu 1\n" || lines[1].Situation != "a" {
		t.Errorf("%+v, %v", lines, err)
	}
	for text, want := range map[string]string{
		"": "stopped early", "{\"Situation\":\"a\"}\n": "stopped early", "{\"Situ": "a line",
		"{\"Error\":\"no disk\"}\n{\"Done\":true}\n": "no disk",
	} {
		if lines, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || lines != nil {
			t.Errorf("%q: %+v, %v", text, lines, err)
		}
	}
}

// TestArchive: what the kernel unpacks is the program and the console.
func TestArchive(t *testing.T) {
	dir := t.TempDir()
	program, archive := filepath.Join(dir, "program"), filepath.Join(dir, "archive")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeArchive(archive, program); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	if len(data)%4 != 0 || bytes.Count(data, []byte("070701")) != 4 || !bytes.Contains(data, []byte("#!/bin/sh\n")) ||
		!bytes.Contains(data, []byte("0000000500000001")) {
		t.Errorf("%q", data)
	}
}

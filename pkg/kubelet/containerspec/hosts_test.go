package containerspec

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestHostsFileContent(t *testing.T) {
	node := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(node, []byte("127.0.0.1 localhost node\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	aliases := []v1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"one", "two"}}}
	for name, test := range map[string]struct {
		file HostsFile
		want string
	}{
		"own network": {
			HostsFile{IPs: []string{"10.0.0.7", "fd00::7"}, Hostname: "web"},
			hostsHeader + loopbackHosts + "10.0.0.7\tweb\nfd00::7\tweb\n",
		},
		"domain": {
			HostsFile{IPs: []string{"10.0.0.7"}, Hostname: "web", Domain: "sub.ns.svc.cluster.local"},
			hostsHeader + loopbackHosts + "10.0.0.7\tweb.sub.ns.svc.cluster.local\tweb\n",
		},
		"aliases": {
			HostsFile{Hostname: "web", Aliases: aliases},
			hostsHeader + loopbackHosts + "\n# Entries added by HostAliases.\n1.2.3.4\tone\ttwo\n",
		},
		"host network": {
			HostsFile{IPs: []string{"10.0.0.7"}, Hostname: "web", HostNetwork: true, Aliases: aliases},
			hostsHeaderHostNetwork + "127.0.0.1 localhost node\n\n# Entries added by HostAliases.\n1.2.3.4\tone\ttwo\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.file.content(node)
			if err != nil || string(got) != test.want {
				t.Fatalf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

func TestHostsFileIsWrittenInPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etc-hosts")
	file := HostsFile{IPs: []string{"10.0.0.7"}, Hostname: "web"}
	want, err := file.content("")
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Umask(syscall.Umask(0o077))
	write := func() os.FileInfo {
		t.Helper()
		if err := file.WriteTo(path); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != string(want) {
			t.Fatalf("got %q, %v", got, err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode() != 0o644 {
			t.Fatalf("mode %v, %v", info.Mode(), err)
		}
		return info
	}

	made := write()
	for name, tampered := range map[string]string{
		"a container wrote to it":       "127.0.0.1 evil\n",
		"a container appended to it":    string(want) + "127.0.0.1 evil\n",
		"a container emptied it":        "",
		"a container filled the volume": strings.Repeat("x", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(tampered), 0o644); err != nil {
				t.Fatal(err)
			}
			if !os.SameFile(made, write()) {
				t.Fatal("the file was replaced: running containers keep the old one")
			}
		})
	}
	// A file with the right content is not truncated.
	if err := os.Chtimes(path, made.ModTime(), made.ModTime()); err != nil {
		t.Fatal(err)
	}
	if again := write(); !again.ModTime().Equal(made.ModTime()) {
		t.Fatal("the file was written although its content was the same")
	}
}

func TestHostsFileErrors(t *testing.T) {
	dir := t.TempDir()
	if err := (HostsFile{}).WriteTo(dir); err == nil {
		t.Fatal("a directory was accepted as a hosts file")
	}
	if err := (HostsFile{}).WriteTo(filepath.Join(dir, "missing", "etc-hosts")); err == nil {
		t.Fatal("no error without a pod directory")
	}
	if _, err := (HostsFile{HostNetwork: true}).content(filepath.Join(dir, "missing")); err == nil {
		t.Fatal("no error without the node's hosts file")
	}
}

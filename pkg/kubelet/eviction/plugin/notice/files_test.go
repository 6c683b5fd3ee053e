package notice

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
)

func noticeOf(name string) debugv1alpha1.PluginNotice {
	return debugv1alpha1.PluginNotice{
		Namespace: "default", Name: name, UID: types.UID(strings.ReplaceAll(name, ".", "-") + "-uid"),
		Plugins: []string{"p", "q"}, Scope: "memory", Reason: "p: r", Since: time.Unix(1e9, 5).UTC(), GraceSeconds: 30,
	}
}

func write1(t *testing.T, dir string, names ...string) {
	t.Helper()
	var list []debugv1alpha1.PluginNotice
	for _, name := range names {
		list = append(list, noticeOf(name))
	}
	if err := (Files{}).Write(dir, list); err != nil {
		t.Fatal(err)
	}
}

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestFilesAreThoseOfTheNotices(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	write1(t, dir)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory was created without a notice: %v", err)
	}
	write1(t, dir, "a", "b.c")
	want := []string{"default_a_a-uid" + suffix, "default_b.c_b-c-uid" + suffix}
	if diff := cmp.Diff(want, names(t, dir)); diff != "" {
		t.Error(diff)
	}
	for path, mode := range map[string]os.FileMode{dir: 0o750, filepath.Join(dir, want[0]): 0o644} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, want[0]))
	if err != nil {
		t.Fatal(err)
	}
	var got debugv1alpha1.PluginNotice
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(noticeOf("a"), got); diff != "" {
		t.Error(diff)
	}
	write1(t, dir, "b.c")
	if diff := cmp.Diff(want[1:], names(t, dir)); diff != "" {
		t.Error(diff)
	}
	write1(t, dir)
	if list := names(t, dir); len(list) != 0 {
		t.Errorf("left: %q", list)
	}
}

// Names of pods may be so long that the name of a file has no place for the whole. The UID tells files apart.
func TestVeryLongNames(t *testing.T) {
	dir, long := t.TempDir(), strings.Repeat("a", 253)
	list := []debugv1alpha1.PluginNotice{noticeOf("1"), noticeOf("2")}
	for i := range list {
		list[i].Namespace, list[i].Name = strings.Repeat("n", 63), long
	}
	if err := (Files{}).Write(dir, list); err != nil {
		t.Fatal(err)
	}
	got := names(t, dir)
	if len(got) != 2 || len(got[0]) > 255 || !strings.HasSuffix(got[1], "_2-uid"+suffix) {
		t.Errorf("files %q", got)
	}
	if write1(t, dir); len(names(t, dir)) != 0 {
		t.Error("the files are not removed")
	}
}

// A file that has changed is replaced; one that has not is left alone, so that its time says when it was written.
func TestFileIsReplacedIfItDiffers(t *testing.T) {
	dir := t.TempDir()
	write1(t, dir, "a")
	path := filepath.Join(dir, names(t, dir)[0])
	open, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	same := func() bool {
		before, errBefore := open.Stat()
		now, errNow := os.Stat(path)
		return errBefore == nil && errNow == nil && os.SameFile(before, now)
	}
	if write1(t, dir, "a"); !same() {
		t.Error("the file was written again")
	}
	n := noticeOf("a")
	n.Reason = "p: x"
	if err := (Files{}).Write(dir, []debugv1alpha1.PluginNotice{n}); err != nil || same() {
		t.Errorf("not replaced: %v", err)
	}
}

// Only files of the form of ours are removed, among them those that an agent was writing when it was killed.
func TestForeignFilesStay(t *testing.T) {
	dir := t.TempDir()
	foreign := []string{
		"notes.txt", "a_b_c.json", "default_a" + suffix, "default_A_uid" + suffix, ".tmp-1", ".tmp-x" + suffix,
	}
	for _, name := range append(foreign, "default_old_uid"+suffix, ".tmp-123"+suffix) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "default_directory_uid"+suffix), 0o700); err != nil {
		t.Fatal(err)
	}
	write1(t, dir)
	want := append(foreign, "default_directory_uid"+suffix)
	slices.Sort(want)
	if diff := cmp.Diff(want, names(t, dir)); diff != "" {
		t.Error(diff)
	}
}

// A link in the place of a file is replaced, and what it points to is not written.
func TestLinksAreNotFollowed(t *testing.T) {
	dir, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	write1(t, dir, "a")
	path := filepath.Join(dir, names(t, dir)[0])
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"x", string(data)} {
		if err := os.WriteFile(target, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
		write1(t, dir, "a")
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
			t.Errorf("not replaced: %v, %v", info.Mode(), err)
		}
		if got, err := os.ReadFile(target); err != nil || string(got) != content {
			t.Errorf("the target was written: %q, %v", got, err)
		}
	}
}

// An error costs one file. Texts of pods cannot name a file outside of the directory.
func TestErrorsCostSingleFiles(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "dir")
	bad := []debugv1alpha1.PluginNotice{
		{Namespace: "..", Name: "../..", UID: "u"}, {Namespace: "n", Name: "a", UID: "../../x"}, {Namespace: "n", Name: "a"},
		{Namespace: "n_a", Name: "a", UID: "u"}, {Namespace: "n", Name: "a/b", UID: "u"},
		{Namespace: "n", Name: "a\x00", UID: "u"},
		{Namespace: "n", Name: "a", UID: types.UID(strings.Repeat("u", 129))},
	}
	err := (Files{}).Write(dir, append(bad, noticeOf("good")))
	if err == nil || strings.Count(err.Error(), "notice of pod") != len(bad) {
		t.Errorf("errors: %v", err)
	}
	if diff := cmp.Diff([]string{"default_good_good-uid" + suffix}, names(t, dir)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"dir"}, names(t, root)); diff != "" {
		t.Error(diff)
	}
	file := filepath.Join(dir, names(t, dir)[0])
	if err := (Files{}).Write(file, []debugv1alpha1.PluginNotice{noticeOf("a")}); err == nil {
		t.Error("a file is no directory")
	}
}

func FuzzFileName(f *testing.F) {
	f.Add("default", "a.b", "uid")
	f.Add("..", "/", "\x00")
	f.Fuzz(func(t *testing.T, namespace, name, uid string) {
		file, err := fileName(&debugv1alpha1.PluginNotice{Namespace: namespace, Name: name, UID: types.UID(uid)})
		if err != nil {
			return
		}
		if filepath.Base(file) != file || !filepath.IsLocal(file) || !form.MatchString(file) {
			t.Errorf("%q", file)
		}
	})
}

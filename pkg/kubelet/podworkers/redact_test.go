package podworkers

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

// talkative is a pod with something in every place that its containers are given something.
func talkative() *v1.Pod {
	pod := newPod("a")
	exec := func(argv ...string) v1.LifecycleHandler {
		return v1.LifecycleHandler{Exec: &v1.ExecAction{Command: argv}}
	}
	hook := exec("sh", "-c", "drain all")
	header := v1.HTTPGetAction{Path: "/health?key=path-secret", HTTPHeaders: []v1.HTTPHeader{{Name: "Authorization", Value: "Bearer header-secret"}}}
	pod.Spec.InitContainers = []v1.Container{{Name: "init", Command: []string{"init-secret"}}}
	pod.Spec.Containers = []v1.Container{{
		Name: "main", Command: []string{"/bin/app"}, Args: []string{"--key=arg-secret", "two words"},
		Env:           []v1.EnvVar{{Name: "A", Value: "env-secret"}, {Name: "B", Value: "multi\nline"}, {Name: "C", Value: "1"}},
		Lifecycle:     &v1.Lifecycle{PreStop: &hook, PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"post-secret"}}}},
		LivenessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &header}}, ReadinessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"probe-secret"}}}},
	}}
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Args: []string{"debug-secret"}}}}
	return pod
}

func TestErrorsAreShownWithoutWhatContainersAreGiven(t *testing.T) {
	for text, want := range map[string]string{
		`Exec lifecycle hook ([sh -c drain all]) for Container "main" failed`: `Exec lifecycle hook ([…]) for Container "main" failed`,
		`exec: "/bin/app": not found`:                                         `exec: "[…]": not found`,
		`start ["/bin/app" "--key=arg-secret" "two words"]`:                   `start […]`,
		`start /bin/app --key=arg-secret two words: no`:                       `start […]: no`,
		`env env-secret, init-secret, debug-secret`:                           `env […], […], […]`,
		"multi\nline and post-secret probe-secret":                            `[…] and […] […]`,
		`Get "/health?key=path-secret": Bearer header-secret`:                 `Get "[…]": […]`,
		`exit status 1`:                      `exit status 1`,
		`secretenv-secrets are another word`: `secretenv-secrets are another word`,
		"a\tb\x1b[31m":                       "a b [31m",
	} {
		if got := (failure{err: errors.New(text)}).view(talkative()).Message; got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
	if (failure{}).view(talkative()) != nil {
		t.Error("an error is shown where there was none")
	}
	if got := (failure{err: errors.New("no pod")}).view(nil).Message; got != "no pod" {
		t.Errorf("without a specification: %q", got)
	}
}

// However an error is put together, nothing of a specification that stands by itself is left, and it is short and printable.
func TestRedactionProperties(t *testing.T) {
	pod := talkative()
	secrets := []string{"arg-secret", "env-secret", "init-secret", "header-secret", "path-secret", "debug-secret", "post-secret", "probe-secret", "drain all"}
	whole := []string{"--key=arg-secret", "env-secret", "init-secret", "Bearer header-secret", "/health?key=path-secret", "debug-secret", "post-secret", "probe-secret", "drain all"}
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOf(rapid.OneOf(rapid.SampledFrom(whole), rapid.StringMatching(`[a-z]{1,12}`))).Draw(t, "words")
		between := rapid.SampledFrom([]string{" ", ", ", `" "`, ": ", "\n"}).Draw(t, "between")
		got := (failure{err: errors.New(strings.Join(words, between))}).view(pod).Message
		for _, secret := range secrets {
			if strings.Contains(got, secret) {
				t.Fatalf("%q is left in %q", secret, got)
			}
		}
		if len(got) > maxMessage || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\t") {
			t.Fatalf("%d bytes: %q", len(got), got)
		}
	})
}

// The words for steps are of steps that there are: the names are read from the source of podsync.
func TestWordsAreOfSteps(t *testing.T) {
	files, err := filepath.Glob("../podsync/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal("no source", err)
	}
	names := map[string]bool{stepStatus: true, stepRuntimePod: true}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			if method, ok := decl.(*ast.FuncDecl); ok && method.Recv != nil && method.Name.Name == "Name" {
				ast.Inspect(method, func(n ast.Node) bool {
					if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
						name, _ := strconv.Unquote(literal.Value)
						names[name] = true
					}
					return true
				})
			}
		}
	}
	if len(names) < 20 {
		t.Fatalf("only %d steps found", len(names))
	}
	for name := range words {
		if !names[name] {
			t.Errorf("there is no step %q", name)
		}
	}
}

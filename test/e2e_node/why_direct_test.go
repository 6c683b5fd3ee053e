//go:build e2e

package e2enode

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/plimsoll-project/plimsoll/cmd/kubectl-pressure/app"
	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	pressureReader = "rbac/pressure-reader.yaml"
	readerSpace    = "plimsoll-system"
	// reader is a user with the rights of docs/decisions.md, for kubectl pressure --direct.
	reader = "ann"
)

// TestReadersOfDecisions has a user who may not use nodes/proxy do with --direct what the shipped roles allow, and
// nothing else; who has no right is refused.
func TestReadersOfDecisions(t *testing.T) {
	s := newSpace(t)
	s.ready(kit.IdlePod("neighbour"))
	s.kubectl("apply", "--namespace="+readerSpace, "-f", manifestFile(pressureReader))
	s.kubectl("create", "clusterrolebinding", reader+"-pressure", "--clusterrole=plimsoll:pressure-user", "--user="+reader)
	s.t.Cleanup(func() {
		after := *s
		after.ctx = context.Background()
		after.kubectl("delete", "clusterrolebinding", reader+"-pressure")
		after.kubectl("delete", "--namespace="+readerSpace, "--ignore-not-found", "-f", manifestFile(pressureReader))
	})
	s.kubectl("create", "rolebinding", reader+"-pressure", "--namespace="+readerSpace, "--role=plimsoll:pressure-user",
		"--user="+reader)
	as := " --as " + reader
	s.eventually(time.Minute, func(context.Context) error {
		if _, messages, code := s.runPressure(strings.Fields("status --direct" + as)...); code != 0 {
			return fmt.Errorf("status --direct: %d %s", code, messages)
		}
		return nil
	})
	for command, part := range map[string]string{
		"status " + cluster.NodeName: "memory.available", "rank " + cluster.NodeName: "As of",
		"trace " + cluster.NodeName: `"kind":"PressureTrace"`, "plan --node " + cluster.NodeName: "decisions from",
	} {
		s.kubectlPressure(command+" --direct"+as, part)
		if _, messages, code := s.runPressure(strings.Fields(command + as)...); code != app.ExitError &&
			code != app.ExitNotFound || !strings.Contains(messages, "nodes/proxy") && !strings.Contains(messages, "forbidden") {
			s.t.Errorf("%s without --direct: exit code %d, %s", command, code, messages)
		}
	}
	if out, messages, code := s.runPressure("why", "neighbour", "--direct", "--as", reader); code != 0 &&
		code != app.ExitNotFound {
		s.t.Errorf("why: exit code %d, %s%s", code, out, messages)
	}
	ctx, cancel := context.WithTimeout(s.ctx, time.Second)
	defer cancel()
	watching := *s
	watching.ctx = ctx
	if _, messages, code := watching.runPressure("watch", cluster.NodeName, "--direct", "--as", reader); code != 0 {
		s.t.Errorf("watch: exit code %d, %s", code, messages)
	}
	if out, err := s.kubectlCommand("exec", "neighbour", "--as="+reader, "--", "true").CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "forbidden") {
		s.t.Errorf("exec by the user: %v %s", err, out)
	}
	s.must(s.rightsOfTokens())
}

// rightsOfTokens asks the port of the node with the token that it gets, and with one of an account without rights.
func (s *space) rightsOfTokens() error {
	pod := s.name + "/neighbour"
	pages := []string{
		"/debug/pressure/status", "/debug/pressure/decisions", "/debug/pressure/decisions/1", "/debug/pressure/watch",
		"/debug/pressure/decisions?trace=true",
	}
	others := []string{
		"/exec/" + pod + "/main?command=true&output=1", "/run/" + pod + "/main?cmd=true", "/attach/" + pod + "/main?output=1",
		"/portForward/" + pod, "/containerLogs/" + pod + "/main", "/logs/", "/configz", "/metrics", "/stats/summary",
	}
	methods := []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	for account, may := range map[string]bool{readerSpace + "/pressure-reader": true, s.name + "/default": false} {
		token, err := s.token(account)
		if err != nil {
			return err
		}
		for _, method := range methods {
			for _, page := range append(pages, others...) {
				code, err := s.askNode(method, page, token)
				if err != nil {
					return fmt.Errorf("%s %s: %w", method, page, err)
				}
				allowed := may && method == http.MethodGet && strings.HasPrefix(page, "/debug/")
				if allowed != (code == http.StatusOK) || (!allowed && code != http.StatusForbidden) {
					s.t.Errorf("%s: %s %s: %d", account, method, page, code)
				}
			}
		}
	}
	return nil
}

func (s *space) token(account string) (string, error) {
	namespace, name, _ := strings.Cut(account, "/")
	request, err := s.client.CoreV1().ServiceAccounts(namespace).CreateToken(s.ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(600))}},
		metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return request.Status.Token, nil
}

// askNode sends a request to the port of the node and returns the code of the answer, whose body it does not await.
func (s *space) askNode(method, page, token string) (int, error) {
	config, err := clientcmd.BuildConfigFromFlags("", node.Layout().AdminConfig())
	s.must(err)
	s.must(rest.LoadTLSFiles(config))
	n, err := s.client.CoreV1().Nodes().Get(s.ctx, cluster.NodeName, metav1.GetOptions{})
	s.must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CAData)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	address := net.JoinHostPort(n.Status.Addresses[0].Address,
		strconv.Itoa(int(n.Status.DaemonEndpoints.KubeletEndpoint.Port)))
	ctx, cancel := context.WithTimeout(s.ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "https://"+address+page, nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, err
	}
	_, _ = io.CopyN(io.Discard, response.Body, 1)
	return response.StatusCode, response.Body.Close()
}

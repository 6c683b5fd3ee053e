package remote

import (
	"context"

	"google.golang.org/grpc"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
)

// Token calls GetToken of the plugin at the other end of the connection and returns its token.
func Token(ctx context.Context, conn grpc.ClientConnInterface) (string, error) {
	answer, err := v1alpha1.NewEvictionPluginClient(conn).GetToken(ctx, &v1alpha1.Empty{})
	return answer.GetToken(), err
}

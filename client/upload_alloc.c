/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of an upload. It is apart from what an upload does, for operations are made and freed
 * below that.
 */
#include <stdlib.h>
#include <string.h>

#include "client/op.h"
#include "client/upload.h"

int lpi_upload_new(struct lpi_op *op, const struct lapis_request *request)
{
	struct lpi_upload *upload = calloc(1, sizeof(*upload));
	if (upload == NULL)
		return -ENOMEM;
	op->upload = upload;
	upload->dir_ino = request->ino;
	upload->data = request->data;
	upload->data_bytes = request->data_bytes;
	upload->source = request->source;
	upload->source_arg = request->source_arg;
	upload->hole = request->source != NULL ? request->hole : NULL;
	upload->path = strdup(request->path != NULL ? request->path : "");
	return upload->path != NULL ? 0 : -ENOMEM;
}

void lpi_upload_free(struct lpi_upload *upload)
{
	if (upload == NULL)
		return;
	free(upload->first);
	free(upload->path);
	free(upload);
}
